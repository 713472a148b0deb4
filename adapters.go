package main

import (
	"slices"
	"time"

	"github.com/warmpath/warmpath/podstate"
)

// readAdapters tells the router which LoRA adapters the pods can be asked for:
// those that they list, and those that run.
func (p *pool) readAdapters() {
	var names []string
	told := false
	for _, c := range p.table.Snapshot(time.Now()) {
		told = told || c.Stats.Has(podstate.FieldModels)
		names = append(names, c.Stats.Loadable...)
		names = append(names, c.Stats.Adapters...)
	}
	slices.Sort(names)
	names = slices.Compact(names)
	// Where no pod has told yet, because all are new, the old names are better
	// than none.
	if !told && len(names) == 0 || slices.Equal(names, p.adapters) {
		return
	}
	p.adapters = names
	left := p.learn(names)
	p.log.Info("adapters changed", "now", len(names)-left)
	if left > 0 {
		p.log.Warn("pods list adapters with names that are too long, or too many of them; requests for those are not routed by name",
			"left out", left)
	}
}
