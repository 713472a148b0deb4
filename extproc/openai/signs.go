package openai

import "strings"

// sign is what a value in a response tells.
type sign uint8

const (
	noSign sign = iota

	// Numbers of tokens, as the dialects count them.
	countPrompt // OpenAI; input_tokens is not in it
	countCached
	countOutput
	countInput // OpenAI responses, Anthropic
	countCacheRead
	countCacheCreation
	countTimedPrompt // llama.cpp timings
	countTimedCached
	countTimedOutput
	afterCounts

	promptTime // llama.cpp timings, milliseconds
	eventType
	objectName
	failure
	promptProgress // llama.cpp: about the prompt, before the first token
	choices        // OpenAI chat and completions
	choiceText     // of completions
	choiceRole
	choiceEnd
	deltaOutput // text or a call
)

// signs says where each sign stands: the keys that lead to it. Elements of a list
// stand where the list does.
var signs = []struct {
	at string
	is sign
}{
	{"choices", choices},
	{"choices.text", choiceText},
	{"choices.finish_reason", choiceEnd},
	{"choices.delta.role", choiceRole},
	{"choices.delta.content", deltaOutput},
	{"choices.delta.reasoning_content", deltaOutput},
	{"choices.delta.reasoning", deltaOutput},
	{"choices.delta.refusal", deltaOutput},
	{"choices.delta.tool_calls", deltaOutput},
	{"choices.delta.function_call", deltaOutput},

	{"type", eventType},
	{"object", objectName},
	{"error", failure},
	{"prompt_progress", promptProgress},

	{"usage.prompt_tokens", countPrompt},
	{"usage.completion_tokens", countOutput},
	{"usage.input_tokens", countInput},
	{"usage.output_tokens", countOutput},
	{"usage.prompt_tokens_details.cached_tokens", countCached},
	{"usage.input_tokens_details.cached_tokens", countCached},
	{"usage.cache_read_input_tokens", countCacheRead},
	{"usage.cache_creation_input_tokens", countCacheCreation},

	// SGLang's own API.
	{"meta_info.prompt_tokens", countPrompt},
	{"meta_info.completion_tokens", countOutput},
	{"meta_info.cached_tokens", countCached},

	// llama.cpp.
	{"timings.prompt_n", countTimedPrompt},
	{"timings.cache_n", countTimedCached},
	{"timings.predicted_n", countTimedOutput},
	{"timings.prompt_ms", promptTime},
}

// place is where a value stands, in the tree of those where a sign may be.
type place uint8

const (
	elsewhere place = iota // no sign here or below
	top
)

type node struct {
	is   sign
	next [16][]step // by the length of the key, which sorts most others out
}

type step struct {
	key string
	to  place
}

type tree []node

// in is the place to which a key leads.
func (t tree) in(at place, key []byte) place {
	for _, s := range t[at].next[len(key)&15] {
		if s.key == string(key) {
			return s.to
		}
	}
	return elsewhere
}

func (t tree) lead(at place, key string, to place) {
	steps := &t[at].next[len(key)&15]
	*steps = append(*steps, step{key, to})
}

// places is the tree of signs. What response and message hold counts as at the
// top, so that usage is found in response.usage too.
var places = func() tree {
	t := tree{elsewhere: {}, top: {}}
	t.lead(top, "response", top)
	t.lead(top, "message", top)
	for _, row := range signs {
		at := top
		for key := range strings.SplitSeq(row.at, ".") {
			next := t.in(at, []byte(key))
			if next == elsewhere {
				next = place(len(t))
				t = append(t, node{})
				t.lead(at, key, next)
			}
			at = next
		}
		t[at].is = row.is
	}
	return t
}()
