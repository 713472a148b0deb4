package discovery

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"github.com/fsnotify/fsnotify"
	"go.yaml.in/yaml/v3"

	"github.com/warmpath/warmpath/podstate"
)

const (
	// maxFile bounds what is read of a file: ten thousand endpoints with labels.
	maxFile = 8 << 20

	// settle is how long a changed file must stay the same before it counts: a
	// writer that is not done has written a shorter list, which may look valid.
	settle = 100 * time.Millisecond

	// poll is how often the file is read even if nobody has said that it changed:
	// symlinks into other folders and network file systems do not tell.
	poll = 10 * time.Second
)

// File is a list in a YAML or JSON file, which is read again when it changes.
type File struct {
	path string
	log  *slog.Logger
}

var _ Discoverer = (*File)(nil)

// NewFile does not read the file; see ReadFile.
func NewFile(path string, log *slog.Logger) *File { return &File{path: path, log: log} }

// Run implements Discoverer. A file that is missing or broken keeps the last
// good list.
func (f *File) Run(ctx context.Context, out chan<- []podstate.Spec) error {
	watcher, err := fsnotify.NewWatcher()
	if err != nil {
		return fmt.Errorf("watch %s: %w", f.path, err)
	}
	defer watcher.Close()
	// The folder, not the file: editors and Kubernetes replace it by renaming.
	folder := filepath.Dir(f.path)
	_ = watcher.Add(folder) // not yet there: poll finds it

	tick := time.NewTicker(poll)
	defer tick.Stop()
	quiet := time.NewTimer(0)
	defer quiet.Stop()
	var last, pending []byte
	var lastErr string
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-watcher.Events:
			quiet.Reset(settle)
			continue
		case <-watcher.Errors: // an overflow: something has changed
			quiet.Reset(settle)
			continue
		case <-tick.C:
			_ = watcher.Add(folder) // it may be another folder of the same name by now
		case <-quiet.C:
		}
		data, err := read(f.path)
		if err == nil && last != nil {
			if bytes.Equal(data, last) {
				continue
			}
			if !bytes.Equal(data, pending) {
				pending = data
				quiet.Reset(settle)
				continue
			}
		}
		var specs []podstate.Spec
		if err == nil {
			specs, err = parseFile(f.path, data)
		}
		if err != nil {
			if err.Error() != lastErr {
				lastErr = err.Error()
				f.log.Error("cannot read the list of endpoints; the last good one stays", "error", err)
			}
			continue
		}
		last, lastErr = data, ""
		f.log.Info("endpoints read", "file", f.path, "endpoints", len(specs))
		send(ctx, out, specs)
	}
}

// ReadFile reads a list once.
func ReadFile(path string) ([]podstate.Spec, error) {
	data, err := read(path)
	if err != nil {
		return nil, err
	}
	return parseFile(path, data)
}

func read(path string) ([]byte, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	data, err := io.ReadAll(io.LimitReader(file, maxFile+1))
	if err == nil && len(data) > maxFile {
		err = fmt.Errorf("%s is larger than %d MB", path, maxFile>>20)
	}
	if data == nil {
		data = []byte{}
	}
	return data, err
}

var errNoList = errors.New("no list of endpoints; write endpoints: [{address: 10.0.0.1, port: 8000}], or endpoints: [] for none")

// parseFile reads {endpoints: [...]} or the bare list.
func parseFile(path string, data []byte) ([]podstate.Spec, error) {
	var content any
	var lines []int // of the entries; JSON has none
	if json.Valid(data) {
		_ = json.Unmarshal(data, &content)
	} else {
		var doc yaml.Node
		if err := yaml.Unmarshal(data, &doc); err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		if err := doc.Decode(&content); err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		lines = entryLines(&doc)
	}
	if m, ok := content.(map[string]any); ok {
		for key := range m {
			if key != "endpoints" {
				return nil, fmt.Errorf("%s: unknown field %q; known: endpoints", path, key)
			}
		}
		content = m["endpoints"]
	}
	list, ok := content.([]any)
	if !ok {
		return nil, fmt.Errorf("%s: %w", path, errNoList)
	}
	specs, err := ParseEndpoints(list)
	var entry *entryError
	switch {
	case errors.As(err, &entry) && entry.index < len(lines):
		return nil, fmt.Errorf("%s:%d: %w", path, lines[entry.index], entry.err)
	case err != nil:
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return sorted(specs), nil
}

// entryLines finds the line of each endpoint.
func entryLines(doc *yaml.Node) (lines []int) {
	if len(doc.Content) == 0 {
		return nil
	}
	list := doc.Content[0]
	if list.Kind == yaml.MappingNode {
		for i := 0; i+1 < len(list.Content); i += 2 {
			if list.Content[i].Value == "endpoints" {
				list = list.Content[i+1]
				break
			}
		}
	}
	for _, entry := range list.Content {
		lines = append(lines, entry.Line)
	}
	return lines
}
