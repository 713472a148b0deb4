package simpod

import (
	"fmt"
	"net/http"
)

// fingerprint names the server in the last event of a stream.
const fingerprint = "vllm-0.32.0-simpod"

// answer frames the output of one request. Its texts hold no character that JSON
// has to escape, but for names, which are quoted.
type answer struct {
	w       http.ResponseWriter
	chat    bool
	model   string
	id      string
	created int64
	text    []byte // of the whole output
	prompt  int    // tokens
	output  int    // tokens
	stopped bool   // the model ended by itself
	buf     []byte // events that are not written yet
}

func (a *answer) prefix() string {
	if a.chat {
		return "chatcmpl-"
	}
	return "cmpl-"
}

func (a *answer) finish(last bool) string {
	switch {
	case !last:
		return "null"
	case a.stopped:
		return `"stop"`
	default:
		return `"length"`
	}
}

// event begins an event; the caller appends the choices and what follows.
func (a *answer) event() {
	object := "text_completion"
	if a.chat {
		object = "chat.completion.chunk"
	}
	a.buf = fmt.Appendf(a.buf, `data: {"id":%q,"object":"%s","created":%d,"model":%q,"choices":`, a.prefix()+a.id, object, a.created, a.model)
}

// tokens adds the event for tokens from to to. The role comes with the first
// token, not before it.
func (a *answer) tokens(from, to int, last bool) {
	if a.chat && from == 0 {
		a.event()
		a.buf = append(a.buf, `[{"index":0,"delta":{"role":"assistant","content":""},"logprobs":null,"finish_reason":null}],"prompt_token_ids":null,"prompt_text":null}`+"\n\n"...)
	}
	text := a.text[from*tokenBytes : to*tokenBytes]
	a.event()
	if a.chat {
		a.buf = fmt.Appendf(a.buf, `[{"index":0,"delta":{"content":"%s"},"logprobs":null,"finish_reason":%s,"token_ids":null}]}`+"\n\n", text, a.finish(last))
	} else {
		a.buf = fmt.Appendf(a.buf, `[{"index":0,"text":"%s","logprobs":null,"finish_reason":%s,"token_ids":null}]}`+"\n\n", text, a.finish(last))
	}
}

func (a *answer) usageEvent(cached int) {
	a.event()
	a.buf = fmt.Appendf(a.buf, `[],"usage":{"prompt_tokens":%d,"total_tokens":%d,"completion_tokens":%d,"prompt_tokens_details":{"cached_tokens":%d}},"system_fingerprint":"%s"}`+"\n\n",
		a.prompt, a.prompt+a.output, a.output, cached, fingerprint)
}

func (a *answer) done() { a.buf = append(a.buf, "data: [DONE]\n\n"...) }

// write sends the events that are ready.
func (a *answer) write() error {
	_, err := a.w.Write(a.buf)
	a.buf = a.buf[:0]
	return err
}

// whole sends the answer that is not a stream.
func (a *answer) whole(cached int) {
	object, choice := "text_completion", fmt.Sprintf(`"text":"%s"`, a.text)
	if a.chat {
		object, choice = "chat.completion", fmt.Sprintf(`"message":{"role":"assistant","content":"%s","tool_calls":[]}`, a.text)
	}
	a.w.Header().Set("Content-Type", "application/json")
	fmt.Fprintf(a.w, `{"id":%q,"object":"%s","created":%d,"model":%q,"choices":[{"index":0,%s,"logprobs":null,"finish_reason":%s,"stop_reason":null}],`+
		`"usage":{"prompt_tokens":%d,"total_tokens":%d,"completion_tokens":%d,"prompt_tokens_details":{"cached_tokens":%d,"created_cache_tokens":null,"multimodal_tokens":null}},"system_fingerprint":"%s"}`,
		a.prefix()+a.id, object, a.created, a.model, choice, a.finish(true), a.prompt, a.prompt+a.output, a.output, cached, fingerprint)
}
