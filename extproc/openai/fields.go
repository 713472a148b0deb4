package openai

// field is a key at the top level of a request.
type field uint8

// Prompt fields come first, in the order in which they are rendered.
const (
	// Rendered as the JSON that they are.
	fieldChatTemplateKwargs field = iota
	fieldFunctions
	fieldTools

	// Text that goes before the prompt.
	fieldQuery
	fieldSystem
	fieldInstructions

	// The prompt. To rerank, every document is one.
	fieldDocuments
	fieldMessages
	fieldPrompt
	fieldInput
	fieldInputs
	fieldText
	fieldInputIDs
	fieldTokenIDs
	fieldText1
	fieldText2
	fieldSuffix

	promptFields
)

const (
	fieldModel field = promptFields + iota
	fieldCacheSalt
	fieldStream
	fieldStreamOptions
	fieldMaxCompletionTokens // three limits, the first that is set counts
	fieldMaxOutputTokens
	fieldMaxTokens
	fieldN
	fieldOther
)

func fieldOf(key []byte) field {
	switch string(key) {
	case "model":
		return fieldModel
	case "messages":
		return fieldMessages
	case "stream":
		return fieldStream
	case "stream_options":
		return fieldStreamOptions
	case "max_tokens":
		return fieldMaxTokens
	case "max_completion_tokens":
		return fieldMaxCompletionTokens
	case "max_output_tokens":
		return fieldMaxOutputTokens
	case "n":
		return fieldN
	case "cache_salt":
		return fieldCacheSalt
	case "tools":
		return fieldTools
	case "functions":
		return fieldFunctions
	case "chat_template_kwargs":
		return fieldChatTemplateKwargs
	case "system":
		return fieldSystem
	case "instructions":
		return fieldInstructions
	case "documents":
		return fieldDocuments
	case "query":
		return fieldQuery
	case "prompt":
		return fieldPrompt
	case "suffix":
		return fieldSuffix
	case "input":
		return fieldInput
	case "inputs":
		return fieldInputs
	case "text":
		return fieldText
	case "text_1":
		return fieldText1
	case "text_2":
		return fieldText2
	case "input_ids":
		return fieldInputIDs
	case "token_ids":
		return fieldTokenIDs
	}
	return fieldOther
}

// promptsOf gives the set of fields that are the prompt in an API. Some of the
// names mean other things elsewhere: text is an output format in responses, and
// input_ids is metadata to nobody but SGLang.
func promptsOf(k Kind) uint32 {
	const tools = 1<<fieldTools | 1<<fieldFunctions | 1<<fieldChatTemplateKwargs
	switch k {
	case Chat:
		return tools | 1<<fieldDocuments | 1<<fieldMessages
	case Completions:
		return 1<<fieldPrompt | 1<<fieldSuffix
	case Responses:
		return tools | 1<<fieldInstructions | 1<<fieldInput
	case Messages:
		return tools | 1<<fieldSystem | 1<<fieldMessages
	case Embeddings:
		return 1<<fieldInstructions | 1<<fieldInput | 1<<fieldInputs | 1<<fieldMessages
	}
	return 1<<promptFields - 1
}
