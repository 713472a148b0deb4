// Package route finds the pool that serves the model that a request names.
package route

import (
	"errors"
	"fmt"

	"github.com/warmpath/warmpath/proto/configpb"
)

// Errors of Route. Both mean that there is no default pool.
var (
	ErrUnknown = errors.New("no pool serves this model")
	ErrMissing = errors.New("the request names no model, and there are several pools")
)

// Target is where a model is served.
type Target struct {
	Pool    int    // index into the pools that New was given
	Base    string // the model that the pods hold, as far as it is known
	Adapter string // the LoRA adapter on top of it, or empty
}

// Router maps names of models to pools. Its methods may be called from any
// goroutine.
type Router struct {
	// Immutable.
	targets  map[string]Target
	other    *Target  // for all other names, or nil
	nameless *Target  // for requests without a model, or nil
	bases    []string // by pool

	learned learned
}

// New returns a router for the pools. Other models go to the pool named
// defaultPool, or nowhere if that is empty.
func New(pools []*configpb.Pool, defaultPool string) (*Router, error) {
	r := &Router{targets: map[string]Target{}, bases: make([]string, len(pools))}
	r.learned.pools = make([][]string, len(pools))
	for i, p := range pools {
		// All names of a pool are names of one model, the first as good as any.
		t := Target{Pool: i}
		if len(p.GetModels()) > 0 {
			t.Base = p.GetModels()[0]
			r.bases[i] = t.Base
		}
		if p.GetName() == defaultPool {
			r.other, r.nameless = &t, &t
		}
		if len(pools) == 1 {
			r.nameless = &t
		}
		for _, m := range p.GetModels() {
			if err := r.add(pools, m, t); err != nil {
				return nil, err
			}
		}
		for _, a := range p.GetAdapters() {
			if err := r.add(pools, a, Target{Pool: i, Base: t.Base, Adapter: a}); err != nil {
				return nil, err
			}
		}
	}
	if defaultPool != "" && r.other == nil {
		return nil, fmt.Errorf("defaultPool %q is not the name of a pool", defaultPool)
	}
	return r, nil
}

func (r *Router) add(pools []*configpb.Pool, model string, t Target) error {
	if old, ok := r.targets[model]; ok {
		return fmt.Errorf("model %q is in pool %q and again in pool %q; a name must have one place",
			model, pools[old.Pool].GetName(), pools[t.Pool].GetName())
	}
	r.targets[model] = t
	return nil
}

// NeedsModel reports whether a request without a model cannot be routed.
func (r *Router) NeedsModel() bool { return r.nameless == nil }

// Route returns the place of a model; empty means that the request names none.
func (r *Router) Route(model string) (Target, error) {
	if model == "" {
		if r.nameless == nil {
			return Target{}, ErrMissing
		}
		return *r.nameless, nil
	}
	if t, ok := r.targets[model]; ok {
		return t, nil
	}
	if t, ok := r.learned.find(model); ok {
		return t, nil
	}
	if r.other == nil {
		return Target{}, ErrUnknown
	}
	return Target{Pool: r.other.Pool, Base: model}, nil
}
