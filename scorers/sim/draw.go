package sim

import (
	"fmt"
	"math"
	"math/rand/v2"
	"strconv"
	"time"

	"github.com/warmpath/warmpath/scorers/sim/engine"
)

// drawnName begins the names of scenarios that are drawn: drawn-17 is the one of
// seed 17. Nobody chose their pods and loads, so they tell whether a rule is
// right in general or fits the catalogue.
const drawnName = "drawn-"

// drawnRequests is about how many requests one has.
const drawnRequests = 2500

// drawnGroup names the first n of them.
func drawnGroup(n int) (names []string) {
	for i := range n {
		names = append(names, drawnName+strconv.Itoa(i+1))
	}
	return names
}

// draw returns the scenario of a seed.
func draw(seed uint64) *Scenario {
	d := dice{rand.New(rand.NewPCG(seed, 4))}
	sc := &Scenario{Scrape: oneOf(d, 50*time.Millisecond, 200*time.Millisecond, time.Second)}
	pods := 2 + d.IntN(9)
	kinds := min(pods, oneOf(d, 1, 1, 2, 2, 3))
	fast := d.engine()
	for i := range kinds {
		cfg := fast
		n := pods - (kinds-1)*(pods/kinds)
		if i > 0 {
			cfg, n = d.slower(fast), pods/kinds
		}
		speed := fmt.Sprintf("%.0f-tokens/s", 1/cfg.Speed.PerToken)
		sc.Fleet = append(sc.Fleet, PodKind{Preset: speed, Count: n, Config: &cfg})
	}
	d.load(sc)
	return sc
}

// dice draw values of everyday sizes.
type dice struct{ *rand.Rand }

func oneOf[T any](d dice, of ...T) T { return of[d.IntN(len(of))] }

func (d dice) uniform(lo, hi float64) float64 { return lo + (hi-lo)*d.Float64() }

// around is uniform in the logarithm.
func (d dice) around(lo, hi float64) float64 { return lo * math.Exp(d.Float64()*math.Log(hi/lo)) }

// engine is a model server with the proportions of known ones: a step takes as
// long as a hundred or more tokens of prompt, and attention takes as long as all
// else at some ten thousand tokens.
func (d dice) engine() engine.Config {
	c, _ := engine.Preset("h100-8b")
	v := &c.Speed
	v.PerToken = d.around(2e-5, 4e-4)
	v.Floor = v.PerToken * d.around(90, 300)
	v.Overhead = d.uniform(0.0005, 0.003)
	v.Attention = v.PerToken / d.around(15_000, 60_000)
	c.KVTokens = int(d.around(40_000, 500_000))
	v.PerContext = v.Floor * d.around(0.3, 3) / float64(c.KVTokens)
	c.TokenBudget = oneOf(d, 2048, 8192)
	c.MaxSeqs = oneOf(d, 64, 256, 256)
	c.BlockTokens = oneOf(d, 16, 16, 32)
	c.MaxModelLen = min(131_072, c.KVTokens-2*c.BlockTokens)
	return c
}

// slower is another GPU with the same model.
func (d dice) slower(c engine.Config) engine.Config {
	v, by := &c.Speed, d.around(1.5, 12)
	v.PerToken *= by
	v.Attention *= by
	v.Floor *= d.around(1.2, by*1.2)
	v.PerContext *= d.around(1, by)
	c.KVTokens = int(float64(c.KVTokens) / d.around(1, 4))
	c.TokenBudget = oneOf(d, 2048, c.TokenBudget)
	c.MaxModelLen = min(131_072, c.KVTokens-2*c.BlockTokens)
	return c
}

// load draws requests, at a rate that the pods can take if it is placed well.
func (d dice) load(sc *Scenario) {
	kv := math.Inf(1)
	for _, k := range sc.Fleet {
		kv = min(kv, float64(k.Config.KVTokens))
	}
	in := lognormal{d.around(200, min(8000, kv/12)), d.uniform(0.3, 1.2), kv / 3}
	out := lognormal{d.around(20, 300), d.uniform(0.3, 1), 1500}
	busy := d.uniform(0.3, 0.95)
	switch kind := d.IntN(5); kind {
	case 0:
		size := oneOf(d, 1.0, 1, 3, 10)
		m := d.mixture(in, kv)
		rate := busy * sc.capacity(m.mean(), 0, out.mean())
		sc.About = "chat"
		sc.Load = func(g *gen) []Request {
			return g.chat(chat{arrivals: bursts{rate: rate, size: size, length: time.Second}, duration: seconds(drawnRequests / rate), in: m, out: out})
		}
	case 1:
		m := d.mixture(in, kv)
		full := sc.capacity(m.mean(), 0, out.mean())
		on, off := d.around(5, 30), d.around(20, 90)
		o := onOff{rate: full * d.uniform(0.1, 0.5), peak: full * d.uniform(0.9, 1.6), on: seconds(on), off: seconds(off), in: m, out: out}
		o.duration = seconds(drawnRequests * (on + off) / (on*o.peak + off*o.rate))
		sc.About = "bursts, some above what the pods can do"
		sc.Load = func(g *gen) []Request { return g.onOff(o) }
	case 2:
		prefix, question := d.around(300, min(12_000, kv/8)), d.around(50, 1500)
		s := shared{groups: int(d.around(4, 200)), prefix: int(prefix), question: int(question), outMin: int(out.median / 2), outMax: int(out.median * 2)}
		s.rate = busy * sc.capacity(question, prefix, out.median*1.25)
		s.duration = seconds(drawnRequests / s.rate)
		sc.About = "questions to shared prompts"
		sc.Load = func(g *gen) []Request { return g.shared(s) }
	default:
		turns := d.around(2, 10)
		next := lognormal{d.around(50, 1000), 0.8, kv / 10}
		system := d.around(100, min(8000, kv/10))
		added := in.mean() + (turns-1)*(next.mean()+out.mean())
		history := system + added
		s := sessions{turns: turns, systems: int(d.around(1, 50)), system: int(system), first: in, next: next, out: out,
			pause: seconds(d.around(1, 40)), wait: kind == 4}
		s.rate = busy * sc.capacity((added+0.1*history)/turns, history/2, out.mean()) / turns
		s.duration = seconds(drawnRequests / (s.rate * turns))
		sc.About = "conversations"
		sc.Load = func(g *gen) []Request { return g.sessions(s) }
	}
	sc.About += ", drawn at random"
}

// mixture is sometimes mixed with rare long prompts.
func (d dice) mixture(in lognormal, kv float64) mixture {
	m := mixture{lognormal: in}
	if d.IntN(3) == 0 {
		m.share = d.around(0.003, 0.05)
		m.rare = lognormal{min(kv/4, in.median*d.around(5, 40)), 0.3, kv / 3}
	}
	return m
}

func (l lognormal) mean() float64 { return min(l.limit, l.median*math.Exp(l.sigma*l.sigma/2)) }

func (m mixture) mean() float64 {
	return (1-m.share)*m.lognormal.mean() + m.share*m.rare.mean()
}

// capacity is about how many requests a second the pods can take together, each
// of so many new and cached prompt tokens and so many tokens of answer: a pod
// runs as many at a time as its KV cache holds, which makes its steps longer.
func (sc *Scenario) capacity(fresh, cached, out float64) (rate float64) {
	for _, k := range sc.Fleet {
		v := &k.Config.Speed
		batch := min(float64(k.Config.MaxSeqs), 0.6*float64(k.Config.KVTokens)/(fresh+cached+out))
		step := v.Overhead + v.Floor + batch*((fresh+cached)*v.PerContext+v.PerSeq)
		prefill := fresh*v.PerToken + fresh*(cached+fresh/2)*v.Attention
		rate += float64(k.Count) / (prefill + out*step/batch)
	}
	return rate
}
