package extproc

import (
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/warmpath/warmpath/extproc/openai"
	"github.com/warmpath/warmpath/podstate"
)

const (
	// assumedOutput is how many tokens a request is expected to generate as long
	// as no response of its pool has told: about the mean of chat traffic.
	assumedOutput = 256
	// assumedText is how many bytes of text a token stands for until then, as in
	// English. It is what openai.Request.Tokens assumes.
	assumedText = 4

	// newest is how much the newest response weighs in the end: what clients send
	// changes over hours, not over minutes.
	newest = 0.02
	// leastText is the length of a prompt, in tokens, below which its chat
	// template outweighs its text.
	leastText = 64
	// maxOutput bounds what one runaway generation can teach.
	maxOutput = 16384

	// blockSlack is how many tokens fewer than expected may come from a pod's
	// cache: engines cache whole blocks of up to 128 tokens.
	blockSlack = 128
	// trustDecay and trustPrior make some twenty prompts, or a few long ones,
	// enough to find that a pod's cache is not what was expected.
	trustDecay = 0.95
	trustPrior = 4096 // tokens
	// trustStep is the change of a pod's trust that is worth a new copy.
	trustStep = 0.02
)

// asked is what a response will be compared with.
type asked struct {
	at      time.Time     // when it was decided
	body    bool          // it has one
	stream  bool          // events are wanted
	answers int           // how many are
	engine  string        // of the pod, as in scrape's table; empty: not known
	pod     *podstate.Pod // the one that was picked

	// Of the prompt, if all of it was read.
	text  int     // bytes of text; 0: not known, or there are media, of any size
	other int     // tokens that are not text, estimated
	share float64 // expected in the pod's cache, with full trust in it
}

// measure takes over what is known of a prompt of which each pod, by slot, is
// expected to have so many bytes cached.
func (a *asked) measure(r *openai.Request, cached []int32, slot int) {
	if r.Media == 0 {
		a.text, a.other = r.TextBytes, r.Tokens(0)-r.TextBytes/assumedText
	}
	if slot < len(cached) && cached[slot] > 0 {
		a.share = float64(cached[slot]) / promptBytes(r.Prompt)
	}
}

func promptBytes(prompt []openai.Span) (n float64) {
	for _, p := range prompt {
		n += float64(p.End - p.Start)
	}
	return n
}

// truth is what one pool's responses have said about their cost, which corrects
// what is expected of the next requests. All methods may be called from any
// goroutine.
type truth struct {
	view atomic.Pointer[beliefs] // nil: nothing has been said

	mu     sync.Mutex   // guards the fields below
	texts  float64      // responses that told their prompt's length
	writes float64      // and their output's
	pods   []cacheTruth // by slot
}

// beliefs is immutable.
type beliefs struct {
	text   float64   // bytes of text a token
	output float64   // tokens an answer
	trust  []float32 // by slot: which share of what is expected in its cache is there
}

// cacheTruth compares what was expected in a pod's cache with what was there.
type cacheTruth struct {
	pod               *podstate.Pod
	expected, found   float64 // tokens, fading
	expectedN, foundN float64 // tokens, all
}

// now is what to expect.
func (t *truth) now() beliefs {
	if b := t.view.Load(); b != nil {
		return *b
	}
	return beliefs{text: assumedText, output: assumedOutput}
}

// learn compares what was expected of a request with what its response says.
// served is the pod that answered.
func (t *truth) learn(a *asked, u *openai.Usage, served *podstate.Pod) {
	t.mu.Lock()
	defer t.mu.Unlock()
	b := t.now()
	if u.Output > 0 {
		t.writes++
		tokens := float64(min(u.Output/max(1, a.answers), maxOutput))
		b.output += (tokens - b.output) * max(newest, 1/t.writes)
	}
	if tokens := u.Prompt - a.other; a.text > 0 && tokens >= leastText {
		t.texts++
		// A step along the logarithm, of bounded length: a prompt that the server
		// has cut or filled up must not count for more than any other.
		limit := 0.3
		if t.texts < 4 {
			limit = 2
		}
		e := math.Log(float64(a.text) / float64(tokens) / b.text)
		e = min(limit, max(-limit, e))
		b.text *= math.Exp(e * max(newest, 1/t.texts))
		b.text = min(32, max(0.25, b.text))
	}
	if u.Cached >= 0 && u.Prompt > 0 && served == a.pod && a.share > 0 {
		b.trust = t.compareLocked(b.trust, served, a.share*float64(u.Prompt), float64(u.Cached))
	}
	t.view.Store(&b)
}

// compareLocked returns trust after a prompt of which so many tokens were
// expected in the pod's cache and so many found.
//
// The blocks that were not found need not be forgotten, since they are there
// now. What was learned is that the pod keeps less than it was thought to: its
// cache is off, or smaller, or filled by others.
func (t *truth) compareLocked(trust []float32, pod *podstate.Pod, expected, found float64) []float32 {
	if pod.Slot >= len(t.pods) {
		t.pods = append(t.pods, make([]cacheTruth, pod.Slot+1-len(t.pods))...)
	}
	c := &t.pods[pod.Slot]
	if c.pod != pod {
		*c = cacheTruth{pod: pod, expected: trustPrior, found: trustPrior}
	}
	c.expectedN += expected
	c.foundN += found
	if expected <= blockSlack {
		return trust
	}
	if found > 0 {
		found = min(expected, found+blockSlack)
	}
	c.expected = c.expected*trustDecay + expected
	c.found = c.found*trustDecay + found

	now := float32(c.found / c.expected)
	if pod.Slot < len(trust) && math.Abs(float64(now-trust[pod.Slot])) < trustStep {
		return trust
	}
	trust = slices.Clone(trust)
	for len(trust) <= pod.Slot {
		trust = append(trust, 1)
	}
	trust[pod.Slot] = now
	return trust
}

// cachedBy returns how many tokens were ever expected in the pod's cache, and
// how many found.
func (t *truth) cachedBy(pod *podstate.Pod) (expected, found float64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if pod.Slot < len(t.pods) && t.pods[pod.Slot].pod == pod {
		c := &t.pods[pod.Slot]
		return c.expectedN, c.foundN
	}
	return 0, 0
}

// cached turns bytes of a prompt that pods are expected to have cached, by slot,
// into tokens of it. It uses the memory of dst.
func (b *beliefs) cached(dst, bytes []int32, tokens int, prompt []openai.Span) []int32 {
	dst = slices.Grow(dst[:0], len(bytes))[:len(bytes)]
	perByte := float64(tokens) / promptBytes(prompt)
	for slot, n := range bytes {
		dst[slot] = 0
		if n == 0 {
			continue
		}
		c := float64(n) * perByte
		if slot < len(b.trust) {
			c *= float64(b.trust[slot])
		}
		dst[slot] = int32(c)
	}
	return dst
}
