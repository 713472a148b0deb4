package config

import (
	"fmt"
	"math"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// Bounds on what aliases may blow a small file up to. A pool of 1,000 static
// pods with labels is some 15,000 values.
const (
	maxNodes = 100_000
	maxDepth = 50
)

// reader holds a YAML tree against a protobuf schema. Its methods turn nodes
// into values for encoding/json, note at which line each field stands, and
// collect mistakes. A value that is wrong is left out, or is zero in a list.
type reader struct {
	file     string
	lines    map[string]int // by path
	mistakes Mistakes
	nodes    int
	depth    int
	spent    bool // a bound has been reached, and reported
}

func (r *reader) wrong(line int, path, format string, args ...any) {
	r.mistakes = append(r.mistakes, Mistake{r.file, line, path, fmt.Sprintf(format, args...)})
}

// enter counts the node, and follows aliases. It returns nil at a bound.
func (r *reader) enter(n *yaml.Node, path string) *yaml.Node {
	r.nodes++
	r.depth++
	if n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	if r.nodes > maxNodes || r.depth > maxDepth {
		if !r.spent {
			r.spent = true
			r.wrong(n.Line, clip(path), "too large: at most %d values, %d deep, aliases written out", maxNodes, maxDepth)
		}
		return nil
	}
	return n
}

func (r *reader) leave() { r.depth-- }

// message reads a mapping whose keys are the fields of d.
func (r *reader) message(n *yaml.Node, d protoreflect.MessageDescriptor, path string) any {
	defer r.leave()
	if n = r.enter(n, path); n == nil {
		return nil
	}
	if d.FullName() == "google.protobuf.Value" {
		return r.free(n, path)
	}
	out := map[string]any{}
	r.mapping(n, path, "fields", func(key, val *yaml.Node) string {
		fd := d.Fields().ByJSONName(key.Value)
		if fd == nil {
			fd = d.Fields().ByTextName(key.Value) // protojson reads max_tokens as well as maxTokens
		}
		if fd == nil {
			r.unknown(key, path, d)
			return ""
		}
		name := fd.JSONName()
		if isNull(val) {
			return name // not set, as in protojson
		}
		at := join(path, name)
		r.lines[at] = key.Line
		switch {
		case fd.IsMap():
			out[name] = r.dict(val, fd.MapValue(), at)
		case fd.IsList():
			if items := r.list(val, fd, at); items != nil {
				out[name] = items
			}
		default:
			if v := r.value(val, fd, at); v != nil {
				out[name] = v
			}
		}
		return name
	})
	return out
}

func (r *reader) unknown(key *yaml.Node, path string, d protoreflect.MessageDescriptor) {
	var allowed []string
	for i := range d.Fields().Len() {
		if fd := d.Fields().Get(i); fd.FullName() != notBuilt {
			allowed = append(allowed, fd.JSONName())
		}
	}
	r.wrong(key.Line, path, "unknown field %s", choose(key.Value, allowed))
}

// mapping calls field for each key, and reports keys whose name it has returned
// before.
func (r *reader) mapping(n *yaml.Node, path, what string, field func(key, val *yaml.Node) string) {
	if n.Kind != yaml.MappingNode {
		r.wrong(n.Line, path, "%s, want a mapping of %s", describe(n), what)
		return
	}
	first := map[string]int{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, val := n.Content[i], n.Content[i+1]
		if key.Kind != yaml.ScalarNode || key.ShortTag() == "!!merge" {
			r.wrong(key.Line, path, "the key %s; want a plain name (merge keys are not read: write the fields out)", describe(key))
			continue
		}
		name := field(key, val)
		if name == "" {
			continue
		}
		if line, twice := first[name]; twice {
			r.wrong(key.Line, join(path, name), "given a second time; first in line %d", line)
			continue
		}
		first[name] = key.Line
	}
}

func (r *reader) dict(n *yaml.Node, fd protoreflect.FieldDescriptor, path string) map[string]any {
	out := map[string]any{}
	defer r.leave()
	if n = r.enter(n, path); n == nil {
		return out
	}
	r.mapping(n, path, "names to values", func(key, val *yaml.Node) string {
		at := join(path, key.Value)
		r.lines[at] = key.Line
		if v := r.value(val, fd, at); v != nil {
			out[key.Value] = v
		}
		return key.Value
	})
	return out
}

func (r *reader) list(n *yaml.Node, fd protoreflect.FieldDescriptor, path string) []any {
	defer r.leave()
	if n = r.enter(n, path); n == nil {
		return nil
	}
	if n.Kind != yaml.SequenceNode {
		r.wrong(n.Line, path, "%s, want a list", describe(n))
		return nil
	}
	out := make([]any, len(n.Content))
	for i, item := range n.Content {
		at := path + "[" + strconv.Itoa(i) + "]"
		r.lines[at] = item.Line
		if out[i] = r.value(item, fd, at); out[i] == nil && fd.Kind() == protoreflect.StringKind {
			out[i] = ""
		}
	}
	return out
}

func (r *reader) value(n *yaml.Node, fd protoreflect.FieldDescriptor, path string) any {
	if fd.Kind() == protoreflect.MessageKind {
		return r.message(n, fd.Message(), path)
	}
	defer r.leave()
	if n = r.enter(n, path); n == nil {
		return nil
	}
	tag := n.ShortTag()
	switch fd.Kind() {
	case protoreflect.StringKind:
		if tag == "!!str" || tag == "!!timestamp" && n.Kind == yaml.ScalarNode {
			return n.Value
		}
		if n.Kind == yaml.ScalarNode && tag != "!!null" {
			r.wrong(n.Line, path, "%s, want a string: write %q, in quotes", describe(n), n.Value)
			return nil
		}
		r.wrong(n.Line, path, "%s, want a string", describe(n))
	case protoreflect.BoolKind:
		var v bool
		if tag == "!!bool" && n.Decode(&v) == nil {
			return v
		}
		r.wrong(n.Line, path, "%s, want true or false", describe(n))
	case protoreflect.Int32Kind:
		var v int32
		if tag == "!!int" && n.Decode(&v) == nil {
			return v
		}
		least, most := bounds(fd)
		r.wrong(n.Line, path, "%s, want a whole number from %d to %d", describe(n), least, most)
	case protoreflect.DoubleKind:
		if v, ok := number(n); ok {
			return v
		}
		r.wrong(n.Line, path, "%s, want a finite number", describe(n))
	default:
		r.wrong(n.Line, path, "BUG: the reader does not know kind %s", fd.Kind())
	}
	return nil
}

// free reads any value. Keys inside it are strings and stand once.
func (r *reader) free(n *yaml.Node, path string) any {
	switch n.Kind {
	case yaml.MappingNode:
		out := map[string]any{}
		r.mapping(n, path, "names to values", func(key, val *yaml.Node) string {
			at := join(path, key.Value)
			r.lines[at] = key.Line
			out[key.Value] = r.freeInside(val, at)
			return key.Value
		})
		return out
	case yaml.SequenceNode:
		out := make([]any, len(n.Content))
		for i, item := range n.Content {
			at := path + "[" + strconv.Itoa(i) + "]"
			r.lines[at] = item.Line
			out[i] = r.freeInside(item, at)
		}
		return out
	}
	switch n.ShortTag() {
	case "!!str", "!!timestamp":
		return n.Value
	case "!!null":
		return nil
	case "!!bool":
		var v bool
		if n.Decode(&v) == nil {
			return v
		}
	case "!!int", "!!float":
		if v, ok := number(n); ok {
			return v
		}
	}
	r.wrong(n.Line, path, "%s, want a string, a finite number, true or false", describe(n))
	return nil
}

func (r *reader) freeInside(n *yaml.Node, path string) any {
	defer r.leave()
	if n = r.enter(n, path); n == nil {
		return nil
	}
	return r.free(n, path)
}

func number(n *yaml.Node) (v float64, ok bool) {
	tag := n.ShortTag()
	ok = (tag == "!!int" || tag == "!!float") && n.Decode(&v) == nil
	return v, ok && !math.IsNaN(v) && !math.IsInf(v, 0)
}

func isNull(n *yaml.Node) bool { return n.Kind == yaml.ScalarNode && n.ShortTag() == "!!null" }

func join(path, name string) string {
	if path == "" {
		return name
	}
	return path + "." + name
}

// standing returns path, or that of the nearest field around it that stands in
// the file; empty if that is the file itself.
func (r *reader) standing(path string) string {
	for path != "" {
		if _, ok := r.lines[path]; ok {
			return path
		}
		path = path[:max(0, strings.LastIndexAny(path, ".["))]
	}
	return ""
}

// lineOf returns the line of the field at path, or of the nearest field around
// it that stands in the file.
func (r *reader) lineOf(path string) int { return r.lines[r.standing(path)] }

// describe says what a node is, to somebody who wanted something else.
func describe(n *yaml.Node) string {
	switch n.Kind {
	case yaml.MappingNode:
		var keys []string
		for i := 0; i < len(n.Content); i += 2 {
			keys = append(keys, n.Content[i].Value)
		}
		return clip("{"+strings.Join(keys, ", ")+"}") + " is a mapping"
	case yaml.SequenceNode:
		return "is a list"
	}
	names := map[string]string{
		"!!str": "a string", "!!int": "a whole number", "!!float": "a number", "!!bool": "a truth value",
		"!!merge": "a merge key",
	}
	name, ok := names[n.ShortTag()]
	switch {
	case isNull(n):
		return "is empty"
	case !ok:
		name = "of type " + n.ShortTag()
	}
	return strconv.Quote(clip(n.Value)) + " is " + name
}

func clip(s string) string {
	if len(s) > 60 {
		return strings.ToValidUTF8(s[:57], "") + "..."
	}
	return s
}
