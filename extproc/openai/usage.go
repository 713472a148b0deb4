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
	prompt, cached, output           int // OpenAI; input_tokens is not in prompt
	input, cacheRead, cacheCreation  int // OpenAI responses, Anthropic
	timedPrompt, timedCached, timedN int // llama.cpp timings
	promptMS                         float64
}

var noCounts = counts{-1, -1, -1, -1, -1, -1, -1, -1, -1, 0}

// usage takes the count at a path, if it is one.
func (c *counts) usage(at path, token []byte) {
	var to *int
	switch at {
	case pathPromptTokens, pathMetaPrompt:
		to = &c.prompt
	case pathCompletionTokens, pathOutputTokens, pathMetaCompletion:
		to = &c.output
	case pathCachedTokens, pathMetaCached:
		to = &c.cached
	case pathInputTokens:
		to = &c.input
	case pathCacheRead:
		to = &c.cacheRead
	case pathCacheCreation:
		to = &c.cacheCreation
	case pathPromptN:
		to = &c.timedPrompt
	case pathCacheN:
		to = &c.timedCached
	case pathPredictedN:
		to = &c.timedN
	case pathPromptMS:
		if ms, err := strconv.ParseFloat(string(token), 64); err == nil && 0 < ms && ms < 1e9 {
			c.promptMS = max(c.promptMS, ms)
		}
		return
	default:
		return
	}
	const most = 1 << 40 // tokens of any response; sums of such stay far from overflow
	if n, ok := whole(token); ok && n < most {
		*to = max(*to, n)
	}
}

// sum makes one meaning of the dialects.
func (c *counts) sum() Usage {
	u := Usage{Cached: first(c.cached, c.cacheRead, c.timedCached), PrefillSeconds: c.promptMS / 1000}
	u.Output = max(0, first(c.output, c.timedN))
	switch {
	case c.prompt >= 0:
		u.Prompt = c.prompt
	case c.input >= 0: // Anthropic's excludes what was cached; elsewhere the other two are absent
		u.Prompt = c.input + max(0, c.cacheRead) + max(0, c.cacheCreation)
	case c.timedPrompt >= 0: // excludes it too
		u.Prompt = c.timedPrompt + max(0, c.timedCached)
	}
	return u
}

// first gives the first count that was said.
func first(counts ...int) int {
	for _, n := range counts {
		if n >= 0 {
			return n
		}
	}
	return -1
}
