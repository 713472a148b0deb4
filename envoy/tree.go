package envoy

import (
	"strings"
	"time"

	"go.yaml.in/yaml/v3"
)

// node is a place in a YAML document, or none at all: every question to a place
// that does not exist is answered by nothing. Envoy takes names of fields in
// snake_case and in camelCase, and so does get.
type node struct{ *yaml.Node }

func (n node) ok() bool { return n.Node != nil }

// or returns n, or m if n does not exist.
func (n node) or(m node) node {
	if n.ok() {
		return n
	}
	return m
}

// get follows a path of field names.
func (n node) get(path ...string) node {
	for _, key := range path {
		n = n.field(key)
	}
	return n
}

func (n node) field(key string) node {
	if !n.ok() || n.Kind != yaml.MappingNode {
		return node{}
	}
	for i := 0; i+1 < len(n.Content); i += 2 {
		if k := n.Content[i].Value; k == key || k == camelCase(key) {
			v := n.Content[i+1]
			if v.Kind == yaml.AliasNode {
				v = v.Alias
			}
			return node{v}
		}
	}
	return node{}
}

func camelCase(name string) string {
	words := strings.Split(name, "_")
	for i, w := range words[1:] {
		if w != "" {
			words[i+1] = strings.ToUpper(w[:1]) + w[1:]
		}
	}
	return strings.Join(words, "")
}

// text is the value at a path, as it is written.
func (n node) text(path ...string) string {
	if n = n.get(path...); n.ok() {
		return n.Value
	}
	return ""
}

// duration is the value of n, or the default that Envoy has for it.
func (n node) duration(otherwise time.Duration) time.Duration {
	if n.ok() {
		if d, err := time.ParseDuration(n.Value); err == nil {
			return d
		}
	}
	return otherwise
}

// items are the elements of a list.
func (n node) items() []node {
	if !n.ok() || n.Kind != yaml.SequenceNode {
		return nil
	}
	items := make([]node, len(n.Content))
	for i, c := range n.Content {
		items[i] = node{c}
	}
	return items
}

// typeName is the message that a typed config holds.
func (n node) typeName() string {
	url := n.text("@type")
	return url[strings.LastIndex(url, "/")+1:]
}

// walk calls f for every mapping below n, with the name of the cluster it is in.
func walk(n node, cluster string, f func(n node, cluster string)) {
	if n.Kind == yaml.MappingNode {
		if n.get("load_balancing_policy").ok() {
			cluster = n.text("name")
		}
		f(n, cluster)
	}
	for _, c := range n.Content {
		walk(node{c}, cluster, f)
	}
}
