package openai

// Constants of the token estimate, in tokens.
const (
	// mediaTokens stands for an image, sound, video or file whose size in tokens
	// only the model knows. Vision models make 250 to 3,000 of an image.
	mediaTokens = 1000
	// messageTokens is what a chat template writes around a message: markers of
	// its start and end, the role, line breaks.
	messageTokens = 4
)

// Tokens estimates the length of the prompt (of all prompts of a batch), at
// least 1. bytesPerToken is what the text has per token, about 4 in English; any
// value that is not above 0 means 4.
func (r *Request) Tokens(bytesPerToken float64) int {
	if !(bytesPerToken > 0) {
		bytesPerToken = 4
	}
	n := int(float64(r.TextBytes)/bytesPerToken) + r.TokenIDs + r.Media*mediaTokens + r.Messages*messageTokens
	return max(1, n)
}
