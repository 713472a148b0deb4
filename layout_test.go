package main_test

import (
	"bufio"
	"bytes"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const (
	module   = "github.com/warmpath/warmpath/"
	maxLines = 400 // what a reader can hold in mind
)

// room says what a package may import besides the standard library. The rooms
// of the core know neither Envoy nor the network, so that the simulator, replay
// and tests run the very code that the server runs.
type room struct {
	own   []string // packages of this module
	other []string // modules of others, with all their packages
	never []string // packages of the standard library that would be a mistake here
}

const (
	envoyTypes = "github.com/envoyproxy/go-control-plane/envoy"
	grpc       = "google.golang.org/grpc"
	protobuf   = "google.golang.org/protobuf"
	prometheus = "github.com/prometheus"
	xxhash     = "github.com/cespare/xxhash/v2"
	yaml       = "go.yaml.in/yaml/v3"
)

// pure are packages that would make a function of plain values depend on more.
var pure = []string{"net/http", "log/slog", "os"}

// rooms are all packages, by folder. A main package, an example or a command
// may import everything and is not listed.
var rooms = map[string]room{
	"podstate":           {never: []string{"net/http", "log/slog"}},
	"podstate/prefix":    {own: []string{"podstate"}, other: []string{xxhash}, never: pure},
	"podstate/scrape":    {own: []string{"podstate", "proto/configpb"}, other: []string{prometheus}},
	"podstate/discovery": {own: []string{"podstate", "proto/configpb"}, other: []string{yaml, "github.com/fsnotify/fsnotify", "golang.org/x/net", "k8s.io", "sigs.k8s.io"}},
	"podstate/peers":     {own: []string{"podstate", "podstate/prefix", "proto/peerpb", "proto/configpb"}, other: []string{grpc, protobuf, prometheus}},
	"scorers":            {own: []string{"podstate", "podstate/prefix", "proto/configpb"}, never: pure},
	"scorers/sim/engine": {other: []string{xxhash}, never: []string{"net/http", "log/slog"}},
	"scorers/sim": {own: []string{"scorers", "scorers/sim/engine", "podstate", "podstate/prefix",
		"extproc/admit", "extproc/route", "proto/configpb"}, never: []string{"net/http"}},
	"scorers/replay": {own: []string{"scorers", "scorers/sim", "scorers/sim/engine", "podstate"}, never: pure},
	"extproc/openai": {other: []string{xxhash}, never: pure},
	"extproc/route":  {own: []string{"podstate", "proto/configpb"}, never: pure},
	"extproc/admit":  {own: []string{"podstate", "proto/configpb"}, other: []string{prometheus}},
	"extproc/admin":  {own: []string{"scorers", "scorers/replay", "podstate"}, other: []string{prometheus}},
	"extproc": {own: []string{"extproc/openai", "extproc/route", "extproc/admit", "scorers", "podstate",
		"podstate/prefix", "podstate/scrape", "proto/configpb"}, other: []string{envoyTypes, grpc, protobuf, prometheus}},
	"envoy":        {own: []string{"proto/configpb"}, other: []string{envoyTypes, grpc, protobuf, "sigs.k8s.io/yaml", yaml}},
	"proto/config": {own: []string{"proto/configpb"}, other: []string{protobuf, yaml}},
}

// free reports whether the package may import everything.
func free(dir string) bool {
	return dir == "." || strings.HasPrefix(dir, "examples/") || path.Base(dir) == "cmd"
}

// generated reports whether the folder holds only what protoc writes.
func generated(dir string) bool {
	return strings.HasPrefix(dir, "proto/") && strings.HasSuffix(dir, "pb")
}

func TestImportsPointOneWay(t *testing.T) {
	for dir, files := range sources(t) {
		if free(dir) || generated(dir) {
			continue
		}
		rule, ok := rooms[dir]
		if !ok {
			t.Errorf("%s is a new room: say in layout_test.go what it may import", dir)
			continue
		}
		for name, file := range files {
			if strings.HasSuffix(name, "_test.go") {
				continue
			}
			for _, spec := range file.Imports {
				imported, err := strconv.Unquote(spec.Path.Value)
				if err != nil {
					t.Fatal(err)
				}
				if !rule.allows(imported) {
					t.Errorf("%s must not import %s: see the rooms in layout_test.go", name, imported)
				}
			}
		}
	}
}

func (r room) allows(imported string) bool {
	if own, ok := strings.CutPrefix(imported, module); ok {
		return slices.Contains(r.own, own)
	}
	first, _, _ := strings.Cut(imported, "/")
	if !strings.Contains(first, ".") {
		return !slices.Contains(r.never, imported)
	}
	return slices.ContainsFunc(r.other, func(m string) bool {
		return imported == m || strings.HasPrefix(imported, m+"/")
	})
}

func TestFilesAreShort(t *testing.T) {
	for dir, files := range sources(t) {
		if generated(dir) {
			continue
		}
		for name := range files {
			text, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			if n := bytes.Count(text, []byte("\n")); n > maxLines {
				t.Errorf("%s has %d lines; split it by what it is responsible for, the limit is %d", name, n, maxLines)
			}
		}
	}
}

func TestPackagesAreDescribed(t *testing.T) {
	for dir, files := range sources(t) {
		described := generated(dir)
		for name, file := range files {
			described = described || file.Doc != nil && !strings.HasSuffix(name, "_test.go")
		}
		if !described {
			t.Errorf("package %s has no comment that says what it is for", dir)
		}
		// A command is described by its room.
		if generated(dir) || path.Base(dir) == "cmd" {
			continue
		}
		if first := firstLine(filepath.Join(dir, "README.md")); !strings.HasPrefix(first, "# ") {
			t.Errorf("%s has no README.md that begins with a title", dir)
		}
	}
}

func firstLine(file string) string {
	f, err := os.Open(file)
	if err != nil {
		return ""
	}
	defer f.Close()
	line, _ := bufio.NewReader(f).ReadString('\n')
	return line
}

// sources returns the Go files of the module by folder and path, read as far as
// their imports.
func sources(t *testing.T) map[string]map[string]*ast.File {
	t.Helper()
	dirs := map[string]map[string]*ast.File{}
	err := filepath.WalkDir(".", func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && (strings.HasPrefix(d.Name(), ".") && name != "." || d.Name() == "testdata") {
			return filepath.SkipDir
		}
		if d.IsDir() || !strings.HasSuffix(name, ".go") {
			return nil
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.ImportsOnly|parser.ParseComments)
		if err != nil {
			return err
		}
		dir := filepath.ToSlash(filepath.Dir(name))
		if dirs[dir] == nil {
			dirs[dir] = map[string]*ast.File{}
		}
		dirs[dir][filepath.ToSlash(name)] = file
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(dirs) < 10 {
		t.Fatalf("only %d packages found: %q", len(dirs), slices.Sorted(maps.Keys(dirs)))
	}
	return dirs
}
