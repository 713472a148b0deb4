package scrape

import (
	"bytes"
	"strings"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"github.com/prometheus/prom2json"
)

// families reads a whole exposition with prom2json, which is slow: for the first
// contact with a pod, and for people. On an error the families before it are
// returned too.
func families(text []byte) ([]*prom2json.Family, error) {
	// prom2json's own readers use a parser without a name scheme, which panics
	// with recent versions of expfmt.
	parser := expfmt.NewTextParser(model.UTF8Validation)
	parsed, err := parser.TextToMetricFamilies(bytes.NewReader(text))
	list := make([]*prom2json.Family, 0, len(parsed))
	for _, f := range parsed {
		list = append(list, prom2json.NewFamily(f))
	}
	return list, err
}

// detect names the engine that sends an exposition, or returns nil.
func detect(text []byte) *engine {
	list, err := families(text)
	if err != nil { // CRLF, types of OpenMetrics, a broken line
		list = namesOnly(text)
	}
	for _, e := range engines {
		for _, f := range list {
			if e.prefix != "" && strings.HasPrefix(f.Name, e.prefix) {
				return e
			}
		}
	}
	return nil
}

// namesOnly lists the names at the beginnings of lines.
func namesOnly(text []byte) (list []*prom2json.Family) {
	for line := range bytes.Lines(text) {
		end := 0
		for end < len(line) && nameByte[line[end]] {
			end++
		}
		if end > 0 {
			list = append(list, &prom2json.Family{Name: string(line[:end])})
		}
	}
	return list
}
