package openai

import (
	"encoding/json"
	"errors"
	"slices"
	"strconv"
	"testing"
)

// oracle says of a body, by encoding/json, what Scan must say of it.
type oracle struct {
	valid, object bool
	fields        map[string]json.RawMessage
}

func newOracle(body []byte) oracle {
	o := oracle{valid: json.Valid(body)}
	o.object = o.valid && json.Unmarshal(body, &o.fields) == nil && o.fields != nil
	return o
}

func (o oracle) text(key string) (string, bool) {
	var v any
	if o.fields[key] == nil || json.Unmarshal(o.fields[key], &v) != nil {
		return "", false
	}
	s, ok := v.(string)
	return s, ok
}

func (o oracle) bool(key string) bool { return string(o.fields[key]) == "true" }

func (o oracle) count(key string) int {
	n, err := strconv.ParseInt(string(o.fields[key]), 10, 64)
	if err != nil || n < 0 {
		return 0
	}
	return int(n)
}

// checkScan compares one scan with the oracle.
func checkScan(t *testing.T, r *Request, kind Kind, body []byte) {
	t.Helper()
	err := r.Scan(kind, body)
	o := newOracle(body)

	var syntax *SyntaxError
	switch {
	case !o.valid:
		if !errors.As(err, &syntax) {
			t.Fatalf("error = %v for invalid JSON", err)
		}
		// encoding/json counts the byte that is wrong, unless there is none.
		var want *json.SyntaxError
		errors.As(json.Unmarshal(body, new(any)), &want)
		if at := int64(syntax.Offset); at != want.Offset-1 && at != want.Offset {
			t.Fatalf("error at byte %d: %s; want %d: %s", at, syntax.Reason, want.Offset, want)
		}
	case !o.object:
		if err != ErrNotObject {
			t.Fatalf("error = %v for valid JSON that is not an object", err)
		}
	case err != nil:
		t.Fatalf("error = %v for a valid object", err)
	default:
		checkFields(t, r, o, body)
	}
	checkSpans(t, r, body)
}

func checkFields(t *testing.T, r *Request, o oracle, body []byte) {
	t.Helper()
	if model, has := o.text("model"); r.Model != model || r.HasModel != has {
		t.Errorf("model = %q, %t; want %q, %t", r.Model, r.HasModel, model, has)
	}
	if r.HasModel {
		var got string
		if json.Unmarshal(body[r.ModelSpan.Start:r.ModelSpan.End], &got) != nil || got != r.Model {
			t.Errorf("the span of the model holds %q; want %q", got, r.Model)
		}
	}
	if salt, _ := o.text("cache_salt"); r.CacheSalt != salt {
		t.Errorf("cache salt = %q; want %q", r.CacheSalt, salt)
	}
	if r.Stream != o.bool("stream") {
		t.Errorf("stream = %t; want %t", r.Stream, o.bool("stream"))
	}
	var options map[string]json.RawMessage
	_ = json.Unmarshal(o.fields["stream_options"], &options)
	if want := (oracle{fields: options}).bool("include_usage"); r.IncludeUsage != want {
		t.Errorf("include usage = %t; want %t", r.IncludeUsage, want)
	}
	want := o.count("max_completion_tokens")
	if want == 0 {
		want = o.count("max_output_tokens")
	}
	if want == 0 {
		want = o.count("max_tokens")
	}
	if r.MaxTokens != want {
		t.Errorf("max tokens = %d; want %d", r.MaxTokens, want)
	}
	if want := o.count("n"); r.N != want {
		t.Errorf("n = %d; want %d", r.N, want)
	}
}

func checkSpans(t *testing.T, r *Request, body []byte) {
	t.Helper()
	for _, spans := range [][]Span{r.Prompt, r.Blobs} {
		for _, s := range spans {
			if s.Start < 0 || s.End > len(body) || s.Start >= s.End || !json.Valid(body[s.Start:s.End]) {
				t.Fatalf("span %v of %d bytes does not hold a JSON value", s, len(body))
			}
		}
	}
	if !slices.IsSortedFunc(r.Blobs, func(a, b Span) int { return a.Start - b.Start }) {
		t.Errorf("blobs %v are not in the order of the body", r.Blobs)
	}
	total := 0
	for _, p := range r.Prompt {
		total += p.End - p.Start
	}
	for _, b := range r.Blobs {
		if !slices.ContainsFunc(r.Prompt, func(p Span) bool { return p.Start <= b.Start && b.End <= p.End }) {
			t.Errorf("blob %v is outside of the prompt %v", b, r.Prompt)
		}
	}
	if r.TextBytes < 0 || r.TextBytes > total || r.TokenIDs > total || r.Media > total || r.Messages > total {
		t.Errorf("%d bytes of text, %d ids, %d media, %d messages in %d bytes of prompt", r.TextBytes, r.TokenIDs, r.Media, r.Messages, total)
	}
	if r.Tokens(4) < 1 {
		t.Errorf("tokens = %d", r.Tokens(4))
	}
}

func FuzzScan(f *testing.F) {
	for _, body := range bodies {
		f.Add(uint8(body.kind), []byte(body.json))
	}
	for _, body := range oddBodies {
		f.Add(uint8(Unknown), []byte(body))
	}
	reused := new(Request) // what a request left behind must not reach the next
	f.Fuzz(func(t *testing.T, kind uint8, body []byte) {
		before := slices.Clone(body)
		checkScan(t, reused, Kind(kind)%(Tokenize+1), body)
		if !slices.Equal(before, body) {
			t.Fatal("the body was changed")
		}
	})
}

// FuzzSplice replaces the model and wants exactly that to change.
func FuzzSplice(f *testing.F) {
	for _, body := range bodies {
		f.Add([]byte(body.json), "llama-3.1-8b")
	}
	f.Add([]byte(`{"model":"a","model":"b"}`), `quote " backslash \ newline`+"\n")
	f.Fuzz(func(t *testing.T, body []byte, model string) {
		var r Request
		if r.Scan(Unknown, body) != nil {
			return
		}
		model = string([]rune(model)) // valid UTF-8, as asked for
		got := SpliceModel([]byte("kept"), body, &r, model)
		if string(got[:4]) != "kept" {
			t.Fatal("what dst held is gone")
		}
		got = got[4:]
		if !r.HasModel {
			if !slices.Equal(got, body) {
				t.Fatal("a body without a model was changed")
			}
			return
		}
		head, tail := body[:r.ModelSpan.Start], body[r.ModelSpan.End:]
		if string(got[:len(head)]) != string(head) || string(got[len(got)-len(tail):]) != string(tail) {
			t.Fatal("bytes outside of the model were changed")
		}
		var again Request
		if err := again.Scan(Unknown, got); err != nil || again.Model != model {
			t.Fatalf("model = %q, %v; want %q", again.Model, err, model)
		}
	})
}
