package openai

// Names of keys in responses, as parts of a path.
const (
	nameWrap    path = iota // response and message at the top: what they hold counts as at the top
	nameOther               // any other key
	nameElement             // an element of a list

	nameUsage
	nameTimings
	nameMetaInfo
	nameChoices
	nameDelta
	nameText
	nameContent // and what else a delta may say
	nameCalls
	nameRole
	nameFinish
	nameType
	nameObject
	nameError
	nameProgress

	namePromptTokens
	nameCompletionTokens
	nameInputTokens
	nameOutputTokens
	nameTokenDetails
	nameCachedTokens
	nameCacheRead
	nameCacheCreation
	nameCacheN
	namePromptN
	namePromptMS
	namePredictedN
)

func nameOf(key []byte) path {
	switch string(key) {
	case "response", "message":
		return nameWrap
	case "usage":
		return nameUsage
	case "timings":
		return nameTimings
	case "meta_info":
		return nameMetaInfo
	case "choices":
		return nameChoices
	case "delta":
		return nameDelta
	case "text":
		return nameText
	case "content", "reasoning_content", "reasoning", "refusal":
		return nameContent
	case "tool_calls", "function_call":
		return nameCalls
	case "role":
		return nameRole
	case "finish_reason":
		return nameFinish
	case "type":
		return nameType
	case "object":
		return nameObject
	case "error":
		return nameError
	case "prompt_progress":
		return nameProgress
	case "prompt_tokens":
		return namePromptTokens
	case "completion_tokens":
		return nameCompletionTokens
	case "input_tokens":
		return nameInputTokens
	case "output_tokens":
		return nameOutputTokens
	case "prompt_tokens_details", "input_tokens_details":
		return nameTokenDetails
	case "cached_tokens":
		return nameCachedTokens
	case "cache_read_input_tokens":
		return nameCacheRead
	case "cache_creation_input_tokens":
		return nameCacheCreation
	case "cache_n":
		return nameCacheN
	case "prompt_n":
		return namePromptN
	case "prompt_ms":
		return namePromptMS
	case "predicted_n":
		return namePredictedN
	}
	return nameOther
}

// Paths of the values that matter.
const (
	pathType     = nameType
	pathObject   = nameObject
	pathError    = nameError
	pathProgress = nameProgress
	pathChoices  = nameChoices

	pathChoice  = nameChoices<<8 | nameElement
	pathText    = pathChoice<<8 | nameText
	pathFinish  = pathChoice<<8 | nameFinish
	pathDelta   = pathChoice<<8 | nameDelta
	pathRole    = pathDelta<<8 | nameRole
	pathContent = pathDelta<<8 | nameContent
	pathCalls   = pathDelta<<8 | nameCalls

	pathContentPart = pathContent<<8 | nameElement
	pathCall        = pathCalls<<8 | nameElement

	pathPromptTokens     = nameUsage<<8 | namePromptTokens
	pathCompletionTokens = nameUsage<<8 | nameCompletionTokens
	pathInputTokens      = nameUsage<<8 | nameInputTokens
	pathOutputTokens     = nameUsage<<8 | nameOutputTokens
	pathCachedTokens     = (nameUsage<<8|nameTokenDetails)<<8 | nameCachedTokens
	pathCacheRead        = nameUsage<<8 | nameCacheRead
	pathCacheCreation    = nameUsage<<8 | nameCacheCreation

	pathMetaPrompt     = nameMetaInfo<<8 | namePromptTokens
	pathMetaCompletion = nameMetaInfo<<8 | nameCompletionTokens
	pathMetaCached     = nameMetaInfo<<8 | nameCachedTokens

	pathCacheN     = nameTimings<<8 | nameCacheN
	pathPromptN    = nameTimings<<8 | namePromptN
	pathPromptMS   = nameTimings<<8 | namePromptMS
	pathPredictedN = nameTimings<<8 | namePredictedN
)
