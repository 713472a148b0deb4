package podstate

import (
	"math"
	"strconv"
	"strings"
	"time"
)

// Speed is how fast a pod processes prompts.
type Speed struct {
	Base   float64 // seconds that a step takes, however short the prompt
	Token  float64 // seconds per uncached prompt token
	Square float64 // seconds per square token: attention looks back at all tokens before
}

// Prefill returns the seconds of work for a prompt of which so many tokens are
// cached.
func (s Speed) Prefill(tokens, cached int) float64 { return s.of(newWork(tokens, cached)) }

// work is the size of a prompt without what is cached.
type work struct {
	tokens float64
	square float64 // tokens² - cached²
}

func newWork(tokens, cached int) work {
	if tokens <= cached {
		return work{1, 1}
	}
	n, c := float64(tokens), float64(cached)
	return work{n - c, n*n - c*c}
}

func (w work) plus(v work) work { return work{w.tokens + v.tokens, w.square + v.square} }

func (s Speed) of(w work) float64 { return s.Token*w.tokens + s.Square*w.square }

// prior is a middling GPU with a middling model; it is wrong by a factor of ten
// at most, and forgotten after a few samples. Attention costs as much as all
// else at some 60,000 tokens of context.
var prior = Speed{Base: 0.02, Token: 1e-4, Square: 1.5e-9}

// A sample is the time that some work took. From it the filter learns how wrong
// each coefficient is, as the variance of its logarithm: a sample moves those
// that have a large part in the prediction and are not yet known well, and no
// others. So short prompts leave the square to the first long ones.
const (
	unknown = 5    // of the prior: wrong by a factor of ten
	drift   = 6e-4 // added by each sample: speed follows a change to a tenth or to tenfold within some fifty
	// Noise of a sample, as the variance of its logarithm. Steps are shared, and
	// what was cached is a guess. If but some first tokens are seen, it is not
	// sure which prompts were processed before; sums of counters, or of whole
	// answers, mix prompts and decoding.
	noiseAll, noiseSome, noiseSum = 0.25, 3, 10
	// surprise is how many standard deviations one sample may teach at most; it
	// can be a stall.
	surprise = 2
)

// rate is a learned Speed: a Kalman filter of the logarithms of its
// coefficients, whose errors are taken to be independent of each other.
type rate struct {
	Speed
	samples float64
	doubt   [3]float64 // variance of the logarithm of Base, Token and Square
}

// learn takes note that so much work, in so many steps, took so many seconds.
func (r *rate) learn(steps float64, w work, seconds, noise float64) {
	parts := [3]float64{r.Base * steps, r.Token * w.tokens, r.Square * w.square}
	predicted := parts[0] + parts[1] + parts[2]
	if r.samples == 0 {
		r.doubt = [3]float64{unknown, unknown, unknown}
	}
	r.samples++
	variance := noise
	for i := range parts {
		parts[i] /= predicted
		r.doubt[i] = min(unknown, r.doubt[i]+drift)
		variance += r.doubt[i] * parts[i] * parts[i]
	}
	limit := surprise * math.Sqrt(variance)
	e := bound(math.Log(max(seconds, 1e-4)/predicted), -limit, limit)
	var by [3]float64
	for i, share := range parts {
		gain := r.doubt[i] * share / variance
		by[i] = math.Exp(gain * e)
		r.doubt[i] -= gain * share * r.doubt[i]
	}
	r.Token = bound(r.Token*by[1], 1e-7, 1e-1)
	r.Base = bound(r.Base*by[0], 10*r.Token, 600*r.Token)
	r.Square = bound(r.Square*by[2], r.Token*1e-7, r.Token*1e-3)
}

func bound(x, lo, hi float64) float64 { return min(hi, max(lo, x)) }

// class is pods of one kind of hardware.
type class struct {
	rate
	limit float64 // batch.limit of its pods, if one has shown it
	slots int     // adapters.slots of its pods, if one has told them
	known bool    // by a mark; else it is all pods of the table without one
}

// hardware are the labels that tell kinds of hardware apart.
var hardware = [...]string{
	"gpu", "accelerator", "nvidia.com/gpu.product", "amd.com/gpu.product-name", "gpu.intel.com/product",
	"cloud.google.com/gke-accelerator", "node.kubernetes.io/instance-type",
}

func (t *Table) classLocked(labels map[string]string) *class {
	var key strings.Builder
	for _, name := range hardware {
		if v := labels[name]; v != "" {
			key.WriteString(name + "=" + v + ";")
		}
	}
	return t.namedClassLocked(key.String(), prior)
}

// sizeLocked puts a pod that has no labels among those with as much room for KV
// cache: what a model leaves of a GPU's memory is a mark of the GPU.
func (t *Table) sizeLocked(p *Pod, kvTokens int) {
	if p.speed.class == t.classes[""] && kvTokens > 0 {
		size := int(math.Log(float64(kvTokens)) * 10)
		p.speed.class = t.namedClassLocked("kv="+strconv.Itoa(size), p.speed.class.Speed)
	}
}

func (t *Table) namedClassLocked(name string, first Speed) *class {
	c := t.classes[name]
	if c == nil {
		c = &class{rate: rate{Speed: first}, known: name != ""}
		t.classes[name] = c
	}
	return c
}

// likely is what one pod was seen to do, and what pods like it do.
type likely struct {
	class *class
	own   rate
}

// podSpeed is a pod's speed, which fades.
type podSpeed struct {
	likely
	last float64   // own.samples, when fade last looked
	at   time.Time // since when that is so
}

// fadeTime without a sample halves what the older ones count. A pod that looks
// slow gets no requests while the others are idle: without this, one slow first
// request would keep it out for good.
const fadeTime = 30 * time.Second

func (p *podSpeed) fade(now time.Time) {
	if p.own.samples == p.last {
		if p.last == 0 || now.Sub(p.at) < fadeTime {
			return
		}
		p.own.samples = min(p.last, 64) / 2
		for i := range p.own.doubt {
			p.own.doubt[i] = min(unknown, 2*p.own.doubt[i])
		}
	}
	p.last, p.at = p.own.samples, now
}

// alike is how far, as the logarithm of a ratio, equal pods seem to differ: what
// one happens to see of long prompts and full batches.
const alike = 0.2

// now is the pod's speed: its own as far as it differs from that of its class by
// more than chance, else its class's. In a long queue, a speed that is wrong by a
// tenth would send a tenth too many.
func (p *likely) now() Speed {
	c := &p.class.rate
	if p.own.samples == 0 {
		return c.Speed
	}
	// Where a mark says that pods are alike, a pod must show for longer that it
	// is not.
	n := 0.5
	if p.class.known {
		n = 8
	}
	r := p.own.Token / c.Token
	d := (r - 1) * (r - 1) / r // about the square of r's logarithm
	w := p.own.samples / (p.own.samples + n) * d / (d + alike*alike)
	return Speed{
		Base:   w*p.own.Base + (1-w)*c.Base,
		Token:  w*p.own.Token + (1-w)*c.Token,
		Square: w*p.own.Square + (1-w)*c.Square,
	}
}

func (p *podSpeed) learn(steps float64, w work, seconds, noise float64) {
	if p.own.samples == 0 {
		p.own.Speed = p.class.Speed
	}
	p.own.learn(steps, w, seconds, noise)
	p.class.learn(steps, w, seconds, noise)
}
