package main

import (
	"log/slog"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/warmpath/warmpath/envoy"
	"github.com/warmpath/warmpath/podstate"
)

func TestPoolTeachesAdapters(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := testPool(t, envoy.NewEDS([]string{"a"}, slog.New(slog.DiscardHandler)))
		var got [][]string
		p.learn = func(names []string) int {
			got = append(got, names)
			return 0
		}
		p.set(t.Context(), pods("10.0.0.1:80", "10.0.0.2:80"))
		first, second := p.table.Pods()[0], p.table.Pods()[1]
		want := func(rule string, calls int, names ...string) {
			t.Helper()
			p.readAdapters()
			if len(got) != calls || calls > 0 && !slices.Equal(got[calls-1], names) {
				t.Errorf("%s: %d calls, the last with %q; want %d and %q", rule, len(got), got, calls, names)
			}
			time.Sleep(time.Second)
		}
		want("nothing is known", 0)
		p.table.SetStats(first, &podstate.Stats{At: time.Now(), Known: podstate.FieldModels, Loadable: []string{"sql", "chat"}}, 0)
		want("listed by one pod", 1, "chat", "sql")
		want("nothing new", 1, "chat", "sql")
		p.table.SetStats(second, &podstate.Stats{At: time.Now(), Known: podstate.FieldAdapters, Adapters: []string{"code", "chat"}}, 0)
		want("running on another", 2, "chat", "code", "sql")
		p.set(t.Context(), pods("10.0.0.3:80"))
		want("all pods are new", 2, "chat", "code", "sql")
		p.table.SetStats(p.table.Pods()[0], &podstate.Stats{At: time.Now(), Known: podstate.FieldModels}, 0)
		want("and have none", 3)
	})
}
