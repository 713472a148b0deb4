package sim

import (
	"cmp"
	"math"
	"math/rand/v2"
	"slices"
	"time"
)

// gen draws loads. scale multiplies all rates of arrival.
type gen struct {
	rng   *rand.Rand
	scale float64
}

func newGen(seed uint64, scale float64) *gen {
	return &gen{rng: rand.New(rand.NewPCG(seed, 1)), scale: scale}
}

// lognormal are lengths in tokens.
type lognormal struct {
	median float64
	sigma  float64 // of the logarithm
	limit  float64
}

// mixture is mostly one kind of lengths, and now and then another.
type mixture struct {
	lognormal
	rare  lognormal
	share float64 // of the rare ones
}

func (m mixture) draw(rng *rand.Rand) int {
	if m.share > 0 && rng.Float64() < m.share {
		return m.rare.draw(rng)
	}
	return m.lognormal.draw(rng)
}

func (l lognormal) draw(rng *rand.Rand) int {
	return int(max(1, min(l.limit, l.median*math.Exp(l.sigma*rng.NormFloat64()))))
}

// bursts are arrivals in groups of geometric size, spread over a length of time.
// Size 1 is a Poisson process; in counts over longer times, the ratio of
// variance and mean is twice the size less one.
type bursts struct {
	rate   float64 // requests a second
	size   float64 // mean of a group
	length time.Duration
}

func (g *gen) arrivals(b bursts, duration time.Duration) (at []time.Duration) {
	gap := b.size / (b.rate * g.scale)
	for t := g.rng.ExpFloat64() * gap; t < duration.Seconds(); t += g.rng.ExpFloat64() * gap {
		at = append(at, seconds(t))
		for b.size > 1 && g.rng.Float64() > 1/b.size {
			at = append(at, seconds(t)+time.Duration(g.rng.Float64()*float64(b.length)))
		}
	}
	slices.Sort(at)
	return at
}

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }

// unique is a text that no other request has.
func (g *gen) unique(tokens int) Segment { return Segment{g.rng.Uint64(), tokens} }

// chat are requests that share nothing.
type chat struct {
	arrivals bursts
	duration time.Duration
	in       mixture
	out      lognormal
}

func (g *gen) chat(c chat) (load []Request) {
	for _, at := range g.arrivals(c.arrivals, c.duration) {
		load = append(load, Request{At: at, Prompt: []Segment{g.unique(c.in.draw(g.rng))}, Output: c.out.draw(g.rng), Reply: g.rng.Uint64()})
	}
	return load
}

// onOff is chat whose rate jumps.
type onOff struct {
	rate, peak float64 // requests a second, off and on
	on, off    time.Duration
	duration   time.Duration
	in         mixture
	out        lognormal
	row        float64 // requests of a client, each after the answer to the one before: mean, geometric; 0 is 1
}

func (g *gen) onOff(o onOff) (load []Request) {
	period := o.on + o.off
	row := max(1, o.row)
	for _, at := range g.arrivals(bursts{rate: o.peak / row, size: 1}, o.duration) {
		if at%period < o.off && g.rng.Float64() > o.rate/o.peak {
			continue
		}
		before := 0
		for n := 0; n == 0 || row > 1 && g.rng.Float64() > 1/row; n++ {
			load = append(load, Request{At: at, After: before, Prompt: []Segment{g.unique(o.in.draw(g.rng))}, Output: o.out.draw(g.rng), Reply: g.rng.Uint64()})
			at, before = 0, len(load)
		}
	}
	return load
}

// shared are questions to a few long prompts, all equally popular.
type shared struct {
	rate             float64
	duration         time.Duration
	groups           int
	prefix, question int // tokens
	outMin, outMax   int
}

func (g *gen) shared(s shared) (load []Request) {
	ids := g.ids(s.groups)
	for _, at := range g.arrivals(bursts{rate: s.rate, size: 1}, s.duration) {
		load = append(load, Request{At: at,
			Prompt: []Segment{{ids[g.rng.IntN(len(ids))], s.prefix}, g.unique(s.question)},
			Output: s.outMin + g.rng.IntN(s.outMax-s.outMin+1), Reply: g.rng.Uint64()})
	}
	return load
}

func (g *gen) ids(n int) (list []uint64) {
	for range n {
		list = append(list, g.rng.Uint64())
	}
	return list
}

// sessions are conversations: each turn brings the whole history and some more.
type sessions struct {
	rate     float64 // sessions a second
	duration time.Duration
	turns    float64 // mean; geometric
	systems  int     // system prompts, of Zipf popularity; 0: none
	system   int     // tokens of each
	first    lognormal
	next     lognormal // what a later turn adds
	out      lognormal
	pause    time.Duration // mean, exponential; between turns
	wait     bool          // a turn comes only a pause after the answer; else a pause after the turn before
}

// longest is the longest context that a turn may bring.
const longest = 120_000

func (g *gen) sessions(s sessions) (load []Request) {
	ids := g.ids(s.systems)
	popular := zipf(len(ids), 1)
	for _, at := range g.arrivals(bursts{rate: s.rate, size: 1}, s.duration) {
		var text []Segment
		if len(ids) > 0 {
			text = append(text, Segment{ids[pick(g.rng, popular)], s.system})
		}
		before := 0
		for turn := 0; turn == 0 || g.rng.Float64() > 1/s.turns; turn++ {
			add := s.next
			if turn == 0 {
				add = s.first
			} else {
				d := time.Duration(g.rng.ExpFloat64() * float64(s.pause))
				if s.wait {
					at = d
				} else if at += d; at > s.duration {
					break
				}
			}
			text = append(text, g.unique(add.draw(g.rng)))
			r := Request{At: at, Prompt: slices.Clip(slices.Clone(text)), Output: s.out.draw(g.rng), Reply: g.rng.Uint64()}
			if s.wait {
				r.After = before
			}
			if r.Tokens() > longest {
				break
			}
			load = append(load, r)
			before = len(load)
			text = append(text, Segment{r.Reply, r.Output})
		}
	}
	if !s.wait {
		slices.SortStableFunc(load, func(a, b Request) int { return cmp.Compare(a.At, b.At) })
	}
	return load
}

// withAdapters gives each request an adapter, of Zipf popularity.
func (g *gen) withAdapters(n int, exponent float64, load []Request) []Request {
	popular := zipf(n, exponent)
	for i := range load {
		load[i].Adapter = adapterName(pick(g.rng, popular))
	}
	return load
}

func adapterName(i int) string {
	const digits = "0123456789"
	return "lora-" + string([]byte{digits[i/100%10], digits[i/10%10], digits[i%10]})
}

// zipf are cumulated shares.
func zipf(n int, exponent float64) []float64 {
	sum := make([]float64, n)
	total := 0.0
	for i := range sum {
		total += math.Pow(float64(i+1), -exponent)
		sum[i] = total
	}
	for i := range sum {
		sum[i] /= total
	}
	return sum
}

func pick(rng *rand.Rand, cumulated []float64) int {
	i, _ := slices.BinarySearch(cumulated, rng.Float64())
	return min(i, len(cumulated)-1)
}
