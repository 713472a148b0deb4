package openai

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
)

// events joins the data of events to a stream.
func events(data ...string) string {
	return "data: " + strings.Join(data, "\n\ndata: ") + "\n\n"
}

const (
	roleEvent   = `{"id":"c-1","object":"chat.completion.chunk","choices":[{"index":0,"delta":{"role":"assistant","content":""},"finish_reason":null}]}`
	tokenEvent  = `{"id":"c-1","object":"chat.completion.chunk","choices":[{"index":0,"delta":{"content":" a"},"finish_reason":null}]}`
	finishEvent = `{"id":"c-1","choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}`
	usageEvent  = `{"id":"c-1","choices":[],"usage":{"prompt_tokens":15,"total_tokens":19,"completion_tokens":4,"prompt_tokens_details":{"cached_tokens":8}}}`
)

var unsaid = Usage{Cached: -1}

var responses = []struct {
	name   string
	body   string
	first  bool
	failed bool
	usage  Usage
}{
	{"an empty body says nothing", "", false, false, unsaid},
	{"white space says nothing", " \r\n", false, false, unsaid},

	// First token of event streams.
	{"a comment is no token", ": keep-alive\n\n:\n\n", false, false, unsaid},
	{"the role alone is no token", events(roleEvent), false, false, unsaid},
	{"text is a token", events(roleEvent, tokenEvent), true, false, unsaid},
	{"the role with text is a token", events(`{"choices":[{"delta":{"role":"assistant","content":"a"}}]}`), true, false, unsaid},
	{"reasoning is a token", events(`{"choices":[{"delta":{"content":null,"reasoning_content":"a"}}]}`), true, false, unsaid},
	{"a call of a tool is a token", events(`{"choices":[{"delta":{"tool_calls":[{"index":0}]}}]}`), true, false, unsaid},
	{"an empty list of calls is none", events(`{"choices":[{"delta":{"role":"assistant","content":null,"tool_calls":[]}}]}`), false, false, unsaid},
	{"the end is a token, if none was seen", events(finishEvent), true, false, unsaid},
	{"usage alone is no token", events(usageEvent), false, false, Usage{15, 8, 4, 0}},
	{"completions: each event is a token, even one without text", events(`{"choices":[{"text":"","finish_reason":null}]}`), true, false, unsaid},
	{"[DONE] is no token", events("[DONE]"), false, false, unsaid},
	{"progress of the prompt is no token", events(`{"choices":[{"delta":{"role":"assistant","content":null}}],"prompt_progress":{"total":9,"processed":4}}`), false, false, unsaid},
	{"an engine's own event is a token", events(`{"token":{"id":5,"text":"a"}}`), true, false, unsaid},
	{"an empty event is none", events("", "{}"), false, false, unsaid},
	{"an unfinished event counts at the end", "data: " + tokenEvent, true, false, unsaid},
	{"CRLF, CR and no space after the colon", "data:" + roleEvent + "\r\n\r\ndata:" + tokenEvent + "\r\r", true, false, unsaid},
	{"an event of several lines of data is one text", "data: {\"choices\":[{\"delta\":\ndata: {\"content\":\"a\"}}]}\n\n", true, false, unsaid},
	{"ids and retry times are passed over", "id: 1\nretry: 5\ndata\nfoo\n" + events(usageEvent), false, false, Usage{15, 8, 4, 0}},
	{"a byte order mark may come first", "\ufeff" + events(tokenEvent), true, false, unsaid},

	// Usage of chat and completions.
	{"a stream ends with its usage", events(roleEvent, tokenEvent, finishEvent, usageEvent, "[DONE]"), true, false, Usage{15, 8, 4, 0}},
	{"usage in every event: the last counts", events(
		`{"choices":[{"text":"a"}],"usage":{"prompt_tokens":15,"completion_tokens":1}}`,
		`{"choices":[{"text":"b"}],"usage":{"prompt_tokens":15,"completion_tokens":2}}`), true, false, Usage{15, -1, 2, 0}},
	{"null usage says nothing", events(`{"choices":[{"text":"a"}],"usage":null}`), true, false, unsaid},
	{"null details are unknown, not 0", `{"usage":{"prompt_tokens":15,"completion_tokens":4,"prompt_tokens_details":null}}`, false, false, Usage{15, -1, 4, 0}},
	{"null cached tokens are unknown, not 0", `{"usage":{"prompt_tokens":15,"completion_tokens":4,"prompt_tokens_details":{"cached_tokens":null}}}`, false, false, Usage{15, -1, 4, 0}},
	{"no cached tokens are 0", `{"usage":{"prompt_tokens":15,"completion_tokens":4,"prompt_tokens_details":{"audio_tokens":1,"cached_tokens":0}}}`, false, false, Usage{15, 0, 4, 0}},
	{"JSON: usage at the end, after text that looks like it",
		`{"object":"chat.completion","choices":[{"message":{"role":"assistant","content":"\"usage\":{\"prompt_tokens\":99}"},"finish_reason":"stop"}],` +
			`"usage":{"prompt_tokens":15,"total_tokens":19,"completion_tokens":4,"prompt_tokens_details":{"cached_tokens":8}}}`, false, false, Usage{15, 8, 4, 0}},
	{"JSON: usage elsewhere is not usage", `{"data":[{"usage":{"prompt_tokens":99}}],"x":{"usage":{"prompt_tokens":99}}}`, false, false, unsaid},
	{"JSON: embeddings have no output", `{"object":"list","data":[{"embedding":[0.1,-2e-3]}],"usage":{"prompt_tokens":7,"total_tokens":7}}`, false, false, Usage{7, -1, 0, 0}},
	{"numbers that are none are passed over", `{"usage":{"prompt_tokens":"15","completion_tokens":-4,"prompt_tokens_details":{"cached_tokens":1.5}}}`, false, false, unsaid},

	// Others' usage.
	{"responses: announcements are no token", events(`{"type":"response.created","response":{"usage":null,"error":null}}`,
		`{"type":"response.in_progress","response":{}}`, `{"type":"response.output_item.added","item":{"type":"message"}}`,
		`{"type":"response.content_part.added"}`), false, false, unsaid},
	{"responses: a delta is a token", "event: response.output_text.delta\n" + events(`{"type":"response.output_text.delta","delta":"a"}`), true, false, unsaid},
	{"responses: usage comes when it is completed", "event: response.completed\n" + events(
		`{"type":"response.completed","response":{"object":"response","error":null,"output":[{"type":"message"}],"usage":{"input_tokens":1073,"input_tokens_details":{"cached_tokens":1024},"output_tokens":2}}}`),
		true, false, Usage{1073, 1024, 2, 0}},
	{"responses: JSON", `{"object":"response","error":null,"usage":{"input_tokens":1073,"input_tokens_details":{"cached_tokens":0},"output_tokens":2}}`, false, false, Usage{1073, 0, 2, 0}},
	{"anthropic: a start and a ping are no token", "event: message_start\n" + events(
		`{"type":"message_start","message":{"type":"message","role":"assistant","content":[],"usage":{"input_tokens":54,"output_tokens":0,"cache_creation_input_tokens":6,"cache_read_input_tokens":1024}}}`) +
		"event: ping\n" + events(`{"type":"ping"}`) + "event: content_block_start\n" + events(`{"type":"content_block_start","content_block":{"type":"text","text":""}}`),
		false, false, Usage{54 + 1024 + 6, 1024, 0, 0}},
	{"anthropic: the input comes first, the output last", events(
		`{"type":"message_start","message":{"usage":{"input_tokens":54,"output_tokens":1,"cache_read_input_tokens":1024}}}`,
		`{"type":"content_block_delta","delta":{"type":"text_delta","text":"a"}}`,
		`{"type":"message_delta","delta":{"stop_reason":"end_turn"},"usage":{"output_tokens":9}}`), true, false, Usage{1078, 1024, 9, 0}},
	{"anthropic: JSON", `{"type":"message","content":[{"type":"text","text":"a"}],"usage":{"input_tokens":54,"output_tokens":2,"cache_creation_input_tokens":0,"cache_read_input_tokens":0}}`, false, false, Usage{54, 0, 2, 0}},
	{"llama.cpp: timings add the time of the prompt", events(`{"choices":[],"usage":{"completion_tokens":4,"prompt_tokens":15},"timings":{"cache_n":5,"prompt_n":10,"prompt_ms":250.5,"predicted_n":4}}`), false, false, Usage{15, 5, 4, 0.2505}},
	{"llama.cpp: timings alone exclude the cached part", `{"content":"a","timings":{"cache_n":5,"prompt_n":10,"prompt_ms":250,"predicted_n":4,"predicted_ms":9.5}}`, false, false, Usage{15, 5, 4, 0.25}},
	{"SGLang: meta_info", `{"text":"a","meta_info":{"prompt_tokens":15,"completion_tokens":4,"cached_tokens":14}}`, false, false, Usage{15, 14, 4, 0}},

	// Failures.
	{"an error in a stream", events(tokenEvent, `{"error":{"message":"out of memory","code":500}}`, "[DONE]"), true, true, unsaid},
	{"an error is no token", events(`{"error":{"message":"x"},"choices":[{"text":"a"}]}`), false, true, unsaid},
	{"an error as a string", events(`{"error":"x"}`), false, true, unsaid},
	{"no error is none", events(`{"error":null,"choices":[{"text":"a"}]}`), true, false, unsaid},
	{"the object error", events(`{"object":"error","message":"x"}`), false, true, unsaid},
	{"an event of the name error, whatever it holds", "event: error\ndata: oh\n\n", false, true, unsaid},
	{"an event of another name", "event: errors\n" + events(tokenEvent), true, false, unsaid},
	{"anthropic: an error", "event: error\n" + events(`{"type":"error","error":{"type":"overloaded_error","message":"x"}}`), false, true, unsaid},
	{"responses: failed", events(`{"type":"response.failed","response":{"error":null}}`), false, true, unsaid},
	{"a choice that ends in error", events(`{"choices":[{"delta":{},"finish_reason":"error"}]}`), false, true, unsaid},
	{"llama.cpp of old", "error: {\"code\":500}\n\n", false, true, unsaid},
	{"JSON: an error", `{"error":{"message":"x"}}`, false, true, unsaid},

	// What cannot be read.
	{"a compressed body is opaque", "\x1f\x8b\x08" + events(tokenEvent, usageEvent), false, false, unsaid},
	{"text is opaque", "<html>\n\n" + events(tokenEvent), false, false, unsaid},
	{"broken JSON in an event does not hide the next", events(`{"choices":[{"text":"`, `]}}"`, usageEvent), false, false, Usage{15, 8, 4, 0}},
	{"a long line does not hide the next event", events(`{"x":"`+strings.Repeat("a", 1<<20)+`"`, usageEvent), true, false, Usage{15, 8, 4, 0}},
	{"deep nesting does not hide what follows", `{"a":` + strings.Repeat(`[{"a":`, 500) + "1" + strings.Repeat("}]", 500) + `,"usage":{"prompt_tokens":15}}`, false, false, Usage{15, -1, 0, 0}},
}

func read(r *Response, chunks ...string) {
	r.Reset()
	for i, c := range chunks {
		r.Write([]byte(c), i == len(chunks)-1)
	}
}

func TestResponse(t *testing.T) {
	r := new(Response)
	for _, tt := range responses {
		t.Run(tt.name, func(t *testing.T) {
			read(r, tt.body)
			if r.FirstToken != tt.first || r.Failed != tt.failed || r.Usage != tt.usage {
				t.Errorf("first token, failed, usage = %t, %t, %+v; want %t, %t, %+v",
					r.FirstToken, r.Failed, r.Usage, tt.first, tt.failed, tt.usage)
			}
		})
	}
}

// outcome is all that a response has told.
func outcome(r *Response) string { return fmt.Sprint(r.FirstToken, r.Failed, r.Usage) }

func TestResponseIsTheSameHoweverItIsCut(t *testing.T) {
	r := new(Response)
	for _, tt := range responses {
		read(r, tt.body)
		want := outcome(r)
		if len(tt.body) > 10_000 {
			continue
		}
		for i := range len(tt.body) + 1 {
			if read(r, tt.body[:i], tt.body[i:]); outcome(r) != want {
				t.Errorf("%s: cut at %d: %s; want %s", tt.name, i, outcome(r), want)
			}
		}
		read(r, append(strings.Split(tt.body, ""), "")...)
		if outcome(r) != want {
			t.Errorf("%s: byte by byte: %s; want %s", tt.name, outcome(r), want)
		}
	}
}

func TestRoleIsTokenForEnginesThatSendThemTogether(t *testing.T) {
	r := &Response{RoleIsToken: true}
	if read(r, events(roleEvent)); !r.FirstToken {
		t.Error("the role is no token")
	}
	if read(r, ": keep-alive\n\n"); r.FirstToken {
		t.Error("a comment is a token")
	}
	if read(r, events(`{"choices":[{"delta":{"role":"assistant"}}],"prompt_progress":{}}`)); r.FirstToken {
		t.Error("progress of the prompt is a token")
	}
}

// The time of the first token is that of the call that returns with FirstToken.
func TestFirstTokenIsKnownWithItsChunk(t *testing.T) {
	r := new(Response)
	r.Reset()
	for i, chunk := range []string{": wait\n\n", events(roleEvent), events(tokenEvent), events(usageEvent)} {
		r.Write([]byte(chunk), false)
		if want := i >= 2; r.FirstToken != want {
			t.Errorf("after chunk %d first token = %t; want %t", i, r.FirstToken, want)
		}
	}
}

func TestResponseDoesNotAllocate(t *testing.T) {
	r := new(Response)
	for _, tt := range responses {
		body := []byte(tt.body)
		n := testing.AllocsPerRun(10, func() {
			r.Reset()
			r.Write(body[:len(body)/2], false)
			r.Write(body[len(body)/2:], true)
		})
		if n != 0 {
			t.Errorf("%s: %v allocations", tt.name, n)
		}
	}
}

// FuzzResponse cuts a body at two places and byte by byte.
func FuzzResponse(f *testing.F) {
	for _, tt := range responses {
		if len(tt.body) < 10_000 {
			f.Add([]byte(tt.body), uint16(len(tt.body)/3), uint16(5))
		}
	}
	f.Fuzz(func(t *testing.T, body []byte, a, b uint16) {
		i := int(a) % (len(body) + 1)
		j := i + int(b)%(len(body)+1-i)
		r := new(Response)
		read(r, string(body))
		want := outcome(r)
		if read(r, string(body[:i]), string(body[i:j]), string(body[j:])); outcome(r) != want {
			t.Errorf("cut at %d and %d: %s; want %s", i, j, outcome(r), want)
		}
		if read(r, append(strings.Split(string(body), ""), "")...); outcome(r) != want {
			t.Errorf("cut everywhere: %s; want %s", outcome(r), want)
		}
	})
}

// FuzzUsage writes usage by encoding/json, beside whatever else a response
// holds, and wants it back.
func FuzzUsage(f *testing.F) {
	f.Add(15, 8, 4, "id", "text", true)
	f.Add(0, 0, 0, "usage", `"usage":{"prompt_tokens":3}`, false)
	f.Fuzz(func(t *testing.T, prompt, cached, output int, key, text string, stream bool) {
		prompt, cached, output = prompt&(1<<38-1), cached&(1<<38-1), output&(1<<38-1)
		body, err := json.Marshal(map[string]any{
			"choices": []any{map[string]any{"message": map[string]string{"content": text}, key: text}},
			"usage": map[string]any{
				"prompt_tokens": prompt, "completion_tokens": output,
				"prompt_tokens_details": map[string]int{"cached_tokens": cached},
				"other":                 map[string]string{key: text},
			},
		})
		if err != nil {
			t.Fatal(err)
		}
		r := new(Response)
		if stream {
			read(r, "data: "+string(body)+"\n\n")
		} else {
			read(r, string(body))
		}
		if want := (Usage{prompt, cached, output, 0}); r.Usage != want {
			t.Errorf("usage = %+v; want %+v", r.Usage, want)
		}
	})
}
