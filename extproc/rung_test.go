package extproc

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/warmpath/warmpath/podstate"
	"github.com/warmpath/warmpath/scorers"
)

func TestRungIsShown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		profile, err := scorers.NewProfile("latency", nil)
		if err != nil {
			t.Fatal(err)
		}
		pool := newPool("m", profile, podA, podB)
		g := newGateway(t, Config{}, "", pool)
		decide := func(body string) {
			t.Helper()
			d := g.open(t)
			d.send(in(reqHeaders(false), buffered))
			d.expect("headers")
			d.send(reqBody(body, true))
			if answer, err := d.stream.Recv(); err != nil || answer.GetRequestBody() == nil {
				t.Fatalf("no pod: %v, %v", answer, err)
			}
		}
		check := func(rung string, now, decisions float64) {
			t.Helper()
			if got := g.count("rung", rung); got != now {
				t.Errorf("the pool is %s: %v, want %v", rung, got, now)
			}
			if got := g.count("rung_decisions_total", rung); got != decisions {
				t.Errorf("%v decisions on %s, want %v", got, rung, decisions)
			}
		}
		decide(prompt(0, 4<<10))
		decide(`{"model":"m"}`)
		check("hash", 1, 1)
		check("random", 0, 1)
		check("fresh", 0, 0)
		for _, p := range pool.Table.Pods() {
			pool.Table.SetStats(p, &podstate.Stats{At: time.Now(), Every: time.Second, Known: podstate.FieldWaiting}, 0)
		}
		decide(prompt(1, 4<<10))
		check("hash", 0, 1)
		check("fresh", 1, 1)
	})
}
