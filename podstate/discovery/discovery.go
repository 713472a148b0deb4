// Package discovery finds the pods of a pool: in the config, in a file, in DNS.
package discovery

import (
	"cmp"
	"context"
	"slices"

	"github.com/warmpath/warmpath/podstate"
)

// Discoverer finds the pods of one pool.
type Discoverer interface {
	// Run sends the whole list whenever it has changed, until ctx ends; then it
	// returns nil. When it cannot find out, it sends nothing: an old list is better
	// than a part of the new one. An empty list is sent only when the source says
	// that there are no pods. The receiver owns the slice.
	Run(ctx context.Context, out chan<- []podstate.Spec) error
}

// Static is a list that never changes.
type Static []podstate.Spec

var _ Discoverer = Static(nil)

// Run implements Discoverer.
func (s Static) Run(ctx context.Context, out chan<- []podstate.Spec) error {
	send(ctx, out, slices.Clone(s))
	<-ctx.Done()
	return nil
}

func send(ctx context.Context, out chan<- []podstate.Spec, specs []podstate.Spec) {
	select {
	case out <- specs:
	case <-ctx.Done():
	}
}

// sorted puts specs into an order that does not depend on the source's.
func sorted(specs []podstate.Spec) []podstate.Spec {
	slices.SortFunc(specs, func(a, b podstate.Spec) int {
		return cmp.Or(a.Addr.Compare(b.Addr), cmp.Compare(a.Name, b.Name))
	})
	return specs
}
