package openai

// shape is how the value of a prompt field becomes text.
type shape uint8

const (
	asJSON    shape = iota // the JSON that it is
	asPreface              // text that goes before the prompt
	asPrompt               // one prompt, or a list of them
)

// promptField is a key at the top level of a request that holds some of its
// prompt.
type promptField struct {
	key string
	shape
}

// promptFields are those of each API, in the order in which they are rendered.
// Some of the keys mean other things elsewhere: text is an output format in
// responses, and input_ids is metadata to nobody but SGLang.
var promptFields = [...][]promptField{
	Unknown: anyPrompt[:],
	Chat: {
		{"chat_template_kwargs", asJSON}, {"functions", asJSON}, {"tools", asJSON},
		{"documents", asPrompt}, {"messages", asPrompt},
	},
	Completions: {{"prompt", asPrompt}, {"suffix", asPrompt}},
	Responses: {
		{"chat_template_kwargs", asJSON}, {"functions", asJSON}, {"tools", asJSON},
		{"instructions", asPreface}, {"input", asPrompt},
	},
	Messages: {
		{"chat_template_kwargs", asJSON}, {"functions", asJSON}, {"tools", asJSON},
		{"system", asPreface}, {"messages", asPrompt},
	},
	Generate:   anyPrompt[:],
	Embeddings: {{"instructions", asPreface}, {"messages", asPrompt}, {"input", asPrompt}, {"inputs", asPrompt}},
	Rerank:     anyPrompt[:], // every document is a prompt
	Tokenize:   anyPrompt[:],
}

var anyPrompt = [...]promptField{
	{"chat_template_kwargs", asJSON}, {"functions", asJSON}, {"tools", asJSON},
	{"query", asPreface}, {"system", asPreface}, {"instructions", asPreface},
	{"documents", asPrompt}, {"messages", asPrompt}, {"prompt", asPrompt}, {"input", asPrompt}, {"inputs", asPrompt}, {"text", asPrompt},
	{"input_ids", asPrompt}, {"token_ids", asPrompt}, {"text_1", asPrompt}, {"text_2", asPrompt}, {"suffix", asPrompt},
}

// indexOf gives the index of the field of a key, or -1.
func indexOf(fields []promptField, key []byte) int {
	for i := range fields {
		if fields[i].key == string(key) {
			return i
		}
	}
	return -1
}
