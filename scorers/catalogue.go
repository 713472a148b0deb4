package scorers

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// builders is the catalogue of scorers, by their names in weights. A scorer is
// a line here and a file. Names and formulas are those of HyperPod and llm-d,
// where they have one.
var builders = map[string]func() Scorer{
	"queue":          func() Scorer { return new(queue) },
	"kvCache":        func() Scorer { return new(kvCache) },
	"running":        func() Scorer { return new(running) },
	"prefix":         func() Scorer { return prefix{} },
	"loraAffinity":   func() Scorer { return loraAffinity{} },
	"lru":            func() Scorer { return new(lru) },
	"activeRequests": func() Scorer { return activeRequests{} },
	"tokenLoad":      func() Scorer { return tokenLoad{} },
	"loadAware":      func() Scorer { return new(loadAware) },
}

// presets is the catalogue of profiles.
var presets = map[string]func() policy{
	"latency":    func() policy { return latency },
	"throughput": func() policy { return throughput },

	// The defaults of HyperPod's gateway and of llm-d's picker are the same.
	"hyperpod": func() policy { return newWeighted(map[string]float64{"queue": 2, "kvCache": 2, "prefix": 3}) },
	"epp":      func() policy { return newWeighted(map[string]float64{"queue": 2, "kvCache": 2, "prefix": 3}) },

	"sticky":        func() policy { return sticky{} },
	"lmetric":       func() policy { return perPod(lmetric) },
	"dynamo":        func() policy { return perPod(dynamo) },
	"least-tokens":  func() policy { return perPod(uncached) },
	"least-request": func() policy { return perPod(leastRequest) },
	"p2c":           func() policy { return p2c{} },
	"chwbl":         func() policy { return chwbl{} },
	"round-robin":   func() policy { return perPod(roundRobin) },
	"random":        func() policy { return perPod(random) },
}

// Names returns the names of the scorers that weights may hold, sorted.
func Names() []string { return slices.Sorted(maps.Keys(builders)) }

// Profiles returns the names of the profiles, sorted.
func Profiles() []string { return slices.Sorted(maps.Keys(presets)) }

// unknown says which names there are. Which one was meant, proto/config says.
func unknown(kind, name string, known []string) error {
	return fmt.Errorf("unknown %s %q; known are %s", kind, name, strings.Join(known, ", "))
}
