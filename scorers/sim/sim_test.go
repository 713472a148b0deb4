package sim

import (
	"math"
	"slices"
	"testing"
	"time"

	"github.com/warmpath/warmpath/podstate"
	"github.com/warmpath/warmpath/scorers"
	"github.com/warmpath/warmpath/scorers/sim/engine"
)

func scenario(t testing.TB, name string) *Scenario {
	t.Helper()
	sc, err := Find(name)
	if err != nil {
		t.Fatal(err)
	}
	return sc
}

func policy(t testing.TB, spec string) func() (Policy, error) {
	t.Helper()
	build, err := ParsePolicy(spec)
	if err != nil {
		t.Fatal(err)
	}
	return build
}

func run(t testing.TB, sc *Scenario, load []Request, build func() (Policy, error)) *Outcome {
	t.Helper()
	out, err := Run(t.Context(), sc, load, build, 1)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// small is a load that is over soon.
func small(seed uint64) []Request {
	return newGen(seed, 1).shared(shared{rate: 20, duration: 10 * time.Second, groups: 6, prefix: 2000, question: 300, outMin: 10, outMax: 60})
}

func TestEveryRequestEndsAndTheSameSeedGivesTheSame(t *testing.T) {
	for _, name := range []string{"A", "F", "lora", "killed"} {
		sc := scenario(t, name)
		load := small(3)
		if sc.Adapters {
			load = newGen(4, 1).withAdapters(40, 1, load)
		}
		a := run(t, sc, load, policy(t, "hyperpod"))
		for i, r := range a.Records {
			if r.TTFT <= 0 || r.Total < r.TTFT || r.Pod < 0 || r.Cached >= r.Prompt || r.At != load[i].At {
				t.Fatalf("%s: request %d: %+v", name, i, r)
			}
		}
		if b := run(t, sc, load, policy(t, "hyperpod")); !slices.Equal(a.Records, b.Records) {
			t.Errorf("%s: two runs differ", name)
		}
	}
}

// What the router believes must be empty when all has ended, or it would drift.
func TestNoChargeIsLeftBehind(t *testing.T) {
	sc := scenario(t, "killed")
	sc.Routers, sc.Gossip = 3, 50*time.Millisecond
	sc.Failures = []Failure{{Pod: 0, At: 4 * time.Second, For: 2 * time.Second, Kind: Kill}}
	sc.Patience = 300 * time.Millisecond
	load := small(1)
	var tables []*tableSpy
	run(t, sc, load, func() (Policy, error) {
		s := &tableSpy{}
		tables = append(tables, s)
		return s, nil
	})
	if len(tables) != 3 {
		t.Fatalf("%d policies, want one for each router", len(tables))
	}
	// The last request of the load comes long after all others have ended.
	last := Request{At: 100 * time.Second, Prompt: []Segment{{1, 10}}, Output: 1}
	for range 30 { // so that each router places some
		last.At += time.Second
		load = append(load, last)
	}
	tables = nil
	run(t, sc, load, func() (Policy, error) {
		s := &tableSpy{}
		tables = append(tables, s)
		return s, nil
	})
	for i, s := range tables {
		if s.last != (podstate.Charge{}) {
			t.Errorf("router %d: a pod is charged with %+v when nothing is open", i, s.last)
		}
	}
}

// tableSpy deals requests out in turn and remembers the largest charge that the
// newest decision saw.
type tableSpy struct {
	roundRobin
	last podstate.Charge
}

func (s *tableSpy) Choose(req *scorers.Request, cands []podstate.Candidate) (first, second int) {
	s.last = podstate.Charge{}
	for _, c := range cands {
		if c.Charge.Requests > 0 {
			s.last = c.Charge
		}
	}
	return s.roundRobin.Choose(req, cands)
}

func TestRouterAndEngineSeeTheSameReuse(t *testing.T) {
	load := small(2)
	var predicted, actual int
	sc := scenario(t, "A")
	out := run(t, sc, load, func() (Policy, error) {
		return choose(func(req *scorers.Request, cands []podstate.Candidate) (int, int) {
			predicted += cands[0].Cached
			return 0, -1
		}), nil
	})
	for _, r := range out.Records {
		actual += r.Cached
	}
	if math.Abs(float64(predicted-actual)) > 0.05*float64(actual) || actual == 0 {
		t.Errorf("the router expected %d cached tokens, the engines found %d", predicted, actual)
	}
}

type choose func(*scorers.Request, []podstate.Candidate) (int, int)

func (c choose) Choose(req *scorers.Request, cands []podstate.Candidate) (int, int) {
	return c(req, cands)
}

func TestDeadPodsAreWorkedAround(t *testing.T) {
	sc := scenario(t, "killed")
	sc.Failures = []Failure{{Pod: 1, At: 4 * time.Second, For: 2 * time.Second, Kind: Kill}}
	out := run(t, sc, small(1), policy(t, "round-robin"))
	died, after := 0, 0
	for _, r := range out.Records {
		switch {
		case r.Total == 0:
			died++
			if r.At > 4*time.Second {
				t.Errorf("a request of %v failed, although another pod was up", r.At)
			}
		case r.Pod == 1 && r.At > 4*time.Second && r.At < 6*time.Second:
			t.Errorf("a dead pod answered a request of %v", r.At)
		case r.Pod == 1 && r.At > 6*time.Second:
			after++
		}
	}
	if died == 0 || after == 0 {
		t.Errorf("%d requests died with their pod, %d went there after its return; want some of both", died, after)
	}
}

func TestImpatientClientsGoAndLeaveNothing(t *testing.T) {
	sc := scenario(t, "killed")
	sc.Fleet = []PodKind{{Preset: "a10g-8b", Count: 1}}
	sc.Failures = nil
	sc.Patience = 2 * time.Second
	out := run(t, sc, small(1), policy(t, "round-robin"))
	gone := 0
	for _, r := range out.Records {
		if r.TTFT > sc.Patience+100*time.Millisecond {
			t.Errorf("a client waited for %v", r.TTFT)
		}
		if r.Total == 0 {
			gone++
		}
	}
	if gone == 0 {
		t.Error("nobody gave up, on a pod that is far too slow")
	}
	if rep := out.Reports[0]; rep.Running+rep.Waiting != 0 {
		t.Errorf("%d requests are left on the pod", rep.Running+rep.Waiting)
	}
}

func TestRequestsThatWaitForAnother(t *testing.T) {
	load := newGen(1, 1).sessions(sessions{rate: 1, duration: 5 * time.Second, turns: 4, wait: true,
		first: lognormal{500, 0.5, 2000}, next: lognormal{100, 0.5, 500}, out: lognormal{50, 0.5, 200}, pause: time.Second})
	out := run(t, scenario(t, "A"), load, policy(t, "prefix=1,queue=1"))
	waited, hit := 0, 0
	for i, q := range load {
		if q.After == 0 {
			continue
		}
		waited++
		before := out.Records[q.After-1]
		if got, want := out.Records[i].At, before.At+before.Total+q.At; got != want {
			t.Fatalf("request %d came at %v, want %v", i, got, want)
		}
		if out.Records[i].Cached > 0 {
			hit++
		}
	}
	if waited == 0 || hit < waited*9/10 {
		t.Errorf("%d of %d later turns found their history cached", hit, waited)
	}
}

func TestClientsThatAskInARow(t *testing.T) {
	o := onOff{rate: 4, peak: 20, on: 10 * time.Second, off: 30 * time.Second, duration: 2000 * time.Second,
		in: mixture{lognormal: lognormal{500, 0.5, 8000}}, out: lognormal{100, 0.5, 1000}}
	for row, clients := range map[float64]float64{0: 16_000, 1: 16_000, 20: 800} {
		o.row = row
		load := newGen(1, 1).onOff(o)
		first := 0
		for i, r := range load {
			switch {
			case r.After == 0:
				first++
			case r.After != i || r.At != 0:
				t.Fatalf("row %v: request %d comes %v after request %d, want at once after the one before it", row, i+1, r.At, r.After)
			}
		}
		if n := float64(len(load)); math.Abs(n-16_000) > 2000 || math.Abs(float64(first)-clients) > 0.1*clients {
			t.Errorf("row %v: %v requests of %d clients, want about 16000 of %v", row, n, first, clients)
		}
	}
}

func TestStalenessAndReplicas(t *testing.T) {
	load := newGen(1, 1).chat(chat{arrivals: bursts{rate: 60, size: 1}, duration: 20 * time.Second,
		in: mixture{lognormal: lognormal{1500, 0.8, 8000}}, out: lognormal{60, 0.5, 300}})
	ttft := func(edit func(*Scenario)) float64 {
		sc := scenario(t, "burst")
		edit(sc)
		return Measure(run(t, sc, load, func() (Policy, error) {
			return choose(func(req *scorers.Request, cands []podstate.Candidate) (int, int) {
				return least(req, cands, func(c *podstate.Candidate) float64 { return c.Charge.Ahead }), -1
			}), nil
		})).TTFT.Mean
	}
	one := ttft(func(*Scenario) {})
	blind := ttft(func(sc *Scenario) { sc.Routers = 8 })
	shared := ttft(func(sc *Scenario) { sc.Routers, sc.Gossip = 8, 20*time.Millisecond })
	if !(one < shared && shared < blind) {
		t.Errorf("mean TTFT: one router %.3f s, eight that share %.3f s, eight that do not %.3f s; want this order", one, shared, blind)
	}
	queue := func(every time.Duration) float64 {
		sc := scenario(t, "burst")
		sc.Scrape = every
		return Measure(run(t, sc, load, func() (Policy, error) {
			return choose(func(req *scorers.Request, cands []podstate.Candidate) (int, int) {
				return least(req, cands, func(c *podstate.Candidate) float64 { return c.Stats.Running + c.Stats.Waiting }), -1
			}), nil
		})).TTFT.Mean
	}
	if fresh, old := queue(50*time.Millisecond), queue(5*time.Second); fresh > old/2 {
		t.Errorf("gauges alone: mean TTFT %.3f s at 50 ms, %.3f s at 5 s; old gauges must hurt", fresh, old)
	}
}

// least is the pod with the least of something, ties at random.
func least(req *scorers.Request, cands []podstate.Candidate, of func(*podstate.Candidate) float64) (best int) {
	for i := range cands {
		j := (i + int(req.Seed%64)) % len(cands)
		if i == 0 || of(&cands[j]) < of(&cands[best]) {
			best = j
		}
	}
	return best
}

func TestPresetsOfAllScenariosExist(t *testing.T) {
	for _, name := range Names() {
		for _, k := range scenario(t, name).pods() {
			if cfg, err := k.config(); err != nil {
				t.Errorf("%s: %v", name, err)
			} else if _, err := engine.New(cfg); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
}

func BenchmarkRun(b *testing.B) {
	for _, name := range []string{"A", "F", "D1"} {
		sc := scenario(b, name)
		load := sc.Generate(1, 1)
		b.Run(name, func(b *testing.B) {
			var out *Outcome
			for b.Loop() {
				out = run(b, sc, load, policy(b, "latency"))
			}
			span := out.Records[len(out.Records)-1].At
			b.ReportMetric(span.Seconds()*float64(b.N)/b.Elapsed().Seconds(), "x-realtime")
			b.ReportMetric(float64(out.Steps*b.N)/b.Elapsed().Seconds(), "steps/s")
		})
	}
}
