package openai

import "testing"

func TestParsePath(t *testing.T) {
	for _, tt := range []struct {
		path string
		want Kind
	}{
		{"/v1/chat/completions", Chat},
		{"/v1/completions", Completions},
		{"/v1/responses", Responses},
		{"/v1/messages", Messages},
		{"/v1/embeddings", Embeddings},
		{"/v1/rerank", Rerank},
		{"/generate", Generate},
		{"/tokenize", Tokenize},
		{"/completion", Completions},

		{"chat/completions", Chat},
		{"/openai/v1/chat/completions", Chat},
		{"/openai/deployments/gpt/chat/completions?api-version=2024-06-01", Chat},
		{"/v1/chat/completions/", Chat},
		{"/v1//chat//completions//?a=/v1/messages", Chat},
		{"/v1/chat/completions#top", Chat},
		{"/v1/chat/completions/batch", Chat},
		{"/v1/chat/completions/render", Tokenize},
		{"/v1/messages/count_tokens", Tokenize},
		{"/inference/v1/generate", Generate},

		{"/x/subcompletions", Unknown},
		{"/v1/chat/Completions", Unknown},
		{"/v1/responses/resp_1/cancel", Unknown},
		{"/v1/models", Unknown},
		{"/invocations", Unknown},
		{"/batch", Unknown},
		{"/", Unknown},
		{"", Unknown},
		{"?", Unknown},
		{"*", Unknown},
	} {
		if got := ParsePath(tt.path); got != tt.want {
			t.Errorf("%q is %s; want %s", tt.path, got, tt.want)
		}
	}
}

func TestEveryKindHasAName(t *testing.T) {
	seen := map[string]bool{}
	for k := Unknown; k <= Tokenize; k++ {
		if seen[k.String()] {
			t.Errorf("kind %d shares the name %s", k, k)
		}
		seen[k.String()] = true
	}
	if got := (Tokenize + 1).String(); got != "unknown" {
		t.Errorf("a kind that does not exist is %q", got)
	}
}

func FuzzParsePath(f *testing.F) {
	f.Add("/v1/chat/completions")
	f.Fuzz(func(t *testing.T, path string) {
		k := ParsePath(path)
		// Neither a query nor a prefix may change the answer.
		if got := ParsePath(path + "?x=/v1/messages"); got != k {
			t.Errorf("with a query %s; want %s", got, k)
		}
		if got := ParsePath("/openai/" + path); got != k {
			t.Errorf("with a prefix %s; want %s", got, k)
		}
	})
}
