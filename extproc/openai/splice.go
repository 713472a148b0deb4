package openai

// SpliceModel appends body to dst with another model name and returns the
// result. Every other byte stays as it is. r must be the result of scanning
// body; if it found no model (a name that is not a string counts as none), the
// body is appended unchanged. Of a name given twice the last is replaced, the
// one that counts. dst must not overlap body.
func SpliceModel(dst, body []byte, r *Request, model string) []byte {
	if !r.HasModel {
		return append(dst, body...)
	}
	dst = append(dst, body[:r.ModelSpan.Start]...)
	dst = appendQuoted(dst, model)
	return append(dst, body[r.ModelSpan.End:]...)
}

// appendQuoted appends text as a JSON string. text must be valid UTF-8, which
// names from a config file are.
func appendQuoted(dst []byte, text string) []byte {
	const hex = "0123456789abcdef"
	dst = append(dst, '"')
	for i := range len(text) {
		switch c := text[i]; {
		case c == '"' || c == '\\':
			dst = append(dst, '\\', c)
		case c < ' ':
			dst = append(dst, '\\', 'u', '0', '0', hex[c>>4], hex[c&15])
		default:
			dst = append(dst, c)
		}
	}
	return append(dst, '"')
}
