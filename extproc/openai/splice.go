package openai

import "encoding/json"

// SpliceModel appends body to dst with another model name and returns the
// result. Every other byte stays as it is. r must be the result of scanning
// body; if it found no model (a name that is not a string counts as none), the
// body is appended unchanged. Of a name given twice the last is replaced, the
// one that counts. dst must not overlap body.
func SpliceModel(dst, body []byte, r *Request, model string) []byte {
	if !r.HasModel {
		return append(dst, body...)
	}
	quoted, err := json.Marshal(model)
	if err != nil { // cannot be: it is a string
		return append(dst, body...)
	}
	dst = append(dst, body[:r.ModelSpan.Start]...)
	dst = append(dst, quoted...)
	return append(dst, body[r.ModelSpan.End:]...)
}
