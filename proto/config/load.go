// Package config reads the gateway's configuration file.
//
// A file is YAML or JSON. It is read in three steps: every key and value is held
// against the schema (proto/config.proto), defaults are filled in, and what the
// values mean is validated. All mistakes are reported at once, each with its
// line. After that the configuration is read-only.
//
// The package knows the schema only. Names that other packages own (profiles,
// scorers, engines) are given to it as Known.
package config

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
	"google.golang.org/protobuf/encoding/protojson"

	"github.com/warmpath/warmpath/proto/configpb"
)

// Known are the names that a configuration may use and that belong to other
// packages.
type Known struct {
	Profiles, Scorers, Engines []string
}

// A Mistake is one thing wrong with a configuration file.
type Mistake struct {
	File string
	Line int    // 0: the file as a whole
	Path string // the field, as in pools[0].scrape.interval; empty: none in particular
	Text string // the value, and what is allowed
}

func (m Mistake) String() string {
	var b strings.Builder
	b.WriteString(m.File)
	if m.Line > 0 {
		b.WriteString(":" + strconv.Itoa(m.Line))
	}
	b.WriteString(": ")
	if m.Path != "" {
		b.WriteString(m.Path + ": ")
	}
	return b.String() + m.Text
}

// Mistakes are all that is wrong with a file, by line.
type Mistakes []Mistake

// Error returns one line for each mistake.
func (ms Mistakes) Error() string {
	lines := make([]string, len(ms))
	for i, m := range ms {
		lines[i] = m.String()
	}
	return strings.Join(lines, "\n")
}

// Load reads the file at path. An error is of type Mistakes.
func Load(path string, known Known) (*configpb.GatewayConfig, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		var pe *os.PathError
		if errors.As(err, &pe) { // it would name the path again
			err = pe.Err
		}
		return nil, Mistakes{{File: path, Text: "the configuration cannot be read: " + err.Error()}}
	}
	return Parse(path, data, known)
}

// Parse reads data as the content of the file at path, to whose folder relative
// paths in the configuration refer. They come back joined with it.
func Parse(path string, data []byte, known Known) (*configpb.GatewayConfig, error) {
	r := &reader{file: path, lines: map[string]int{}}
	root, err := r.document(data)
	if err != nil {
		return nil, err
	}
	c := &configpb.GatewayConfig{}
	tree := r.message(root, c.ProtoReflect().Descriptor(), "")
	if root.Kind != yaml.MappingNode || r.spent {
		return nil, r.sorted()
	}
	if err := decode(tree, c); err != nil {
		return nil, Mistakes{{File: path, Text: err.Error()}}
	}
	setDefaults(c, func(field string) bool { _, ok := r.lines[field]; return ok })
	v := &validator{reader: r, known: known, dir: filepath.Dir(path), unread: slices.Clone(r.mistakes)}
	v.config(c)
	if len(r.mistakes) > 0 {
		return nil, r.sorted()
	}
	resolvePaths(c, v.dir)
	return c, nil
}

// Line returns the line of the file at path at which the field stands, as in
// pools[0].scrape, or what is around it. It is 0 if that cannot be found out.
func Line(path, field string) int {
	data, err := os.ReadFile(path)
	if err != nil {
		return 0
	}
	r := &reader{file: path, lines: map[string]int{}}
	root, err := r.document(data)
	if err != nil {
		return 0
	}
	r.message(root, (&configpb.GatewayConfig{}).ProtoReflect().Descriptor(), "")
	return r.lineOf(field)
}

// decode fills c from a tree that has been checked against its schema.
func decode(tree any, c *configpb.GatewayConfig) error {
	text, err := json.Marshal(tree)
	if err != nil {
		return err
	}
	return protojson.Unmarshal(text, c)
}

// resolvePaths joins the relative paths in c with the folder of its file, so
// that a configuration means the same wherever it is used from.
func resolvePaths(c *configpb.GatewayConfig, dir string) {
	resolve := func(path *string) { *path = resolved(*path, dir) }
	resolve(&c.Server.Grpc.Tls.CertDir)
	if l := c.Server.DecisionLog; l != nil {
		resolve(&l.File)
	}
	for _, p := range c.Pools {
		resolve(&p.Discovery.File)
		if tls := p.Scrape.Tls; tls != nil {
			resolve(&tls.CaFile)
		}
	}
}

func resolved(path, dir string) string {
	if path == "" || filepath.IsAbs(path) {
		return path
	}
	return filepath.Join(dir, path)
}

var yamlLine = regexp.MustCompile(`^yaml: (?:line (\d+): )?`)

// document returns the one mapping that the file consists of.
func (r *reader) document(data []byte) (*yaml.Node, error) {
	if json.Valid(data) {
		data = jsonEscape.ReplaceAllFunc(data, unescape)
	}
	dec := yaml.NewDecoder(bytes.NewReader(data))
	var doc yaml.Node
	switch err := dec.Decode(&doc); {
	case errors.Is(err, io.EOF):
		return nil, Mistakes{{File: r.file, Text: "the file is empty; it needs at least pools"}}
	case err != nil:
		text := err.Error()
		m := Mistake{File: r.file, Text: "not YAML: " + text[len(yamlLine.FindString(text)):]}
		if sub := yamlLine.FindStringSubmatch(text); sub != nil {
			m.Line, _ = strconv.Atoi(sub[1])
		}
		return nil, Mistakes{m}
	}
	var more yaml.Node
	if err := dec.Decode(&more); !errors.Is(err, io.EOF) {
		return nil, Mistakes{{File: r.file, Line: more.Line, Text: "a second document begins here; one file is one configuration"}}
	}
	root := doc.Content[0]
	if root.Kind == yaml.MappingNode {
		// A document of another kind would be wrong in every line.
		for i := 0; i+1 < len(root.Content); i += 2 {
			key, val := root.Content[i].Value, root.Content[i+1].Value
			if key == "kind" && val != kind || key == "apiVersion" && val != apiVersion {
				return nil, Mistakes{{File: r.file, Line: root.Content[i].Line, Path: key,
					Text: fmt.Sprintf("%q is not read here; want apiVersion %q and kind %q", val, apiVersion, kind)}}
			}
		}
	}
	return root, nil
}

// jsonEscape finds all escapes of JSON, a pair of surrogates as one.
var jsonEscape = regexp.MustCompile(`\\(u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|.)`)

// unescape replaces those that YAML does not know, and which alone keep JSON
// from being YAML.
func unescape(escape []byte) []byte {
	var text string
	if escape[1] == '/' || len(escape) > 2 {
		if json.Unmarshal([]byte(`"`+string(escape)+`"`), &text) == nil {
			return []byte(text)
		}
	}
	return escape
}

func (r *reader) sorted() Mistakes {
	slices.SortStableFunc(r.mistakes, func(a, b Mistake) int {
		return cmp.Or(cmp.Compare(a.Line, b.Line), cmp.Compare(a.Path, b.Path))
	})
	return r.mistakes
}
