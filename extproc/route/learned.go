package route

import (
	"slices"
	"sync"
	"sync/atomic"
)

const (
	// maxLearned bounds how many adapters of one pool are known, and maxName how
	// long their names are: pods are believed, but not without limits.
	maxLearned = 10_000
	maxName    = 256
)

// learned are LoRA adapters that pods have, beyond those of the configuration.
type learned struct {
	targets atomic.Pointer[map[string]Target] // nil: none; the map is never changed

	mu    sync.Mutex // guards pools
	pools [][]string // sorted
}

// Learn makes names the adapters that the pods of a pool can be asked for, in
// place of those of the last call. A name of the configuration stays what it is;
// one that the pods of several pools have leads to none of them. It returns how
// many names are too long or too many. Requests are routed meanwhile.
func (r *Router) Learn(pool int, names []string) (left int) {
	sorted := slices.Clone(names)
	slices.Sort(sorted)
	sorted = slices.Compact(sorted)
	all := len(sorted)
	sorted = slices.DeleteFunc(sorted, func(n string) bool { return n == "" || len(n) > maxName })
	sorted = sorted[:min(len(sorted), maxLearned)]

	l := &r.learned
	l.mu.Lock()
	defer l.mu.Unlock()
	l.pools[pool] = sorted
	targets := map[string]Target{}
	places := map[string]int{}
	for i, names := range l.pools {
		for _, n := range names {
			places[n]++
			targets[n] = Target{Pool: i, Base: r.bases[i], Adapter: n}
		}
	}
	for n, count := range places {
		if _, fixed := r.targets[n]; fixed || count > 1 {
			delete(targets, n)
		}
	}
	l.targets.Store(&targets)
	return all - len(sorted)
}

func (l *learned) find(model string) (Target, bool) {
	m := l.targets.Load()
	if m == nil {
		return Target{}, false
	}
	t, ok := (*m)[model]
	return t, ok
}
