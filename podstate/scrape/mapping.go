package scrape

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// parseMapping reads the mapping of a config: from the name of a quantity to a
// series, with or without one label: name{label="value"}.
func parseMapping(m map[string]string) (rows []row, err error) {
	for _, name := range slices.Sorted(maps.Keys(m)) {
		spec, q := m[name], slices.Index(quantityNames[:], name)
		if q < 0 {
			return nil, fmt.Errorf("mapping of unknown quantity %q; known: %s", name, strings.Join(quantityNames[:], ", "))
		}
		r := row{is: quantity(q)}
		var sc scanner
		var rest string
		r.name, rest, _ = strings.Cut(spec, "{")
		if rest != "" {
			after, ok := sc.labelSet([]byte(rest))
			if !ok || len(after) > 0 || len(sc.labels) > 1 {
				return nil, fmt.Errorf("mapping of %s: %q is not a series; write name or name{label=\"value\"}", name, spec)
			}
			for _, l := range sc.labels {
				r.where = string(l.name) + "=" + string(l.value)
			}
		}
		if r.name == "" {
			return nil, fmt.Errorf("mapping of %s has no series", name)
		}
		rows = append(rows, r)
	}
	return rows, nil
}
