package openai

import "strconv"

// Usage is what a response says about its cost.
type Usage struct {
	Prompt         int     // tokens, those from the cache included; 0 = not said
	Cached         int     // tokens of Prompt that came from the prefix cache; -1 = not said, which is not 0
	Output         int     // tokens generated; 0 = none, or not said
	PrefillSeconds float64 // time that the prompt took on the GPU; 0 = not said
}

// counts are the numbers of a response as they stand there; -1 = not said. Each
// may be said several times (per event, or once at the start and again at the
// end) and never falls, so the largest counts.
type counts struct {
	tokens   [afterCounts]int
	promptMS float64
}

var noCounts = func() (c counts) {
	for i := range c.tokens {
		c.tokens[i] = -1
	}
	return c
}()

// add takes the number that stands at a sign.
func (c *counts) add(is sign, token []byte) {
	if is == promptTime {
		if ms, err := strconv.ParseFloat(string(token), 64); err == nil && 0 < ms && ms < 1e9 {
			c.promptMS = max(c.promptMS, ms)
		}
		return
	}
	const most = 1 << 40 // tokens of any response; sums of such stay far from overflow
	if n, ok := whole(token); ok && n < most {
		c.tokens[is] = max(c.tokens[is], n)
	}
}

// sum makes one meaning of the dialects.
func (c *counts) sum() Usage {
	u := Usage{
		Cached:         c.first(countCached, countCacheRead, countTimedCached),
		Output:         max(0, c.first(countOutput, countTimedOutput)),
		PrefillSeconds: c.promptMS / 1000,
	}
	t := &c.tokens
	switch {
	case t[countPrompt] >= 0:
		u.Prompt = t[countPrompt]
	case t[countInput] >= 0: // Anthropic's excludes what was cached; elsewhere the other two are absent
		u.Prompt = t[countInput] + max(0, t[countCacheRead]) + max(0, t[countCacheCreation])
	case t[countTimedPrompt] >= 0: // excludes it too
		u.Prompt = t[countTimedPrompt] + max(0, t[countTimedCached])
	}
	return u
}

// first gives the first count that was said.
func (c *counts) first(signs ...sign) int {
	for _, s := range signs {
		if n := c.tokens[s]; n >= 0 {
			return n
		}
	}
	return -1
}
