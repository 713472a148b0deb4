package openai

import "strings"

// Kind is the API that a request speaks.
type Kind uint8

// The APIs that are told apart.
const (
	Unknown     Kind = iota // any other path: every known field is read
	Chat                    // OpenAI chat completions
	Completions             // OpenAI completions, llama.cpp /completion
	Responses               // OpenAI responses
	Messages                // Anthropic messages
	Generate                // the engines' own: SGLang and TGI /generate, vLLM /inference/v1/generate
	Embeddings              // no output tokens, as all below
	Rerank                  // rerank and score
	Tokenize                // tokenize, Anthropic count_tokens, vLLM …/render
)

var kindNames = [...]string{"unknown", "chat", "completions", "responses", "messages", "generate", "embeddings", "rerank", "tokenize"}

// String returns a short word, fit for a metric's label.
func (k Kind) String() string {
	if int(k) < len(kindNames) {
		return kindNames[k]
	}
	return kindNames[Unknown]
}

// ParsePath tells the API from the :path of a request. Whatever stands before
// the last words does not count (/v1, /openai/v1, /openai/deployments/x), nor do
// the query and slashes at the end. A word must match whole.
func ParsePath(path string) Kind {
	if i := strings.IndexAny(path, "?#"); i >= 0 {
		path = path[:i]
	}
	path, last := cutLast(path)
	_, before := cutLast(path)

	if before == "chat" && last == "completions" || before == "completions" && last == "batch" { // vLLM: a list of conversations
		return Chat
	}
	return kinds[last]
}

// kinds tells the API by the last word of a path.
var kinds = map[string]Kind{
	"completions": Completions, "completion": Completions,
	"responses": Responses,
	"messages":  Messages,
	"generate":  Generate, "generate_stream": Generate,
	"embeddings": Embeddings, "embedding": Embeddings, "embed": Embeddings,
	"rerank": Rerank, "score": Rerank,
	"tokenize": Tokenize, "count_tokens": Tokenize, "input_tokens": Tokenize, "render": Tokenize,
}

// cutLast splits a path before its last word, without the slashes around it.
func cutLast(path string) (before, last string) {
	path = strings.TrimRight(path, "/")
	i := strings.LastIndexByte(path, '/')
	return path[:i+1], path[i+1:]
}
