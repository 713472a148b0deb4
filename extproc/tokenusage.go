package extproc

import "github.com/warmpath/warmpath/extproc/openai"

// usageSpace is the namespace of typed metadata in which Envoy's
// ai_protocol_manager (since 1.40) puts an envoy.data.ai.v3.TokenUsage.
const usageSpace = "envoy.ai.token_usage"

// unmarshalTyped reads one entry of Metadata.typed_filter_metadata.
func (m *message) unmarshalTyped(entry []byte) error {
	space, wrapped, err := mapEntry(entry)
	if err != nil || string(space) != usageSpace {
		return err
	}
	_, value, err := mapEntry(wrapped) // Any has the shape of an entry: the type's name and the message
	if err != nil {
		return err
	}
	m.usage, m.hasUsage = openai.Usage{Cached: -1}, true
	return fields(value, func(k key, value []byte, _ uint64) error {
		switch k {
		case 3<<3 | withLength: // input_tokens
			return unwrap(&m.usage.Prompt, value)
		case 4<<3 | withLength: // output_tokens
			return unwrap(&m.usage.Output, value)
		case 6<<3 | withLength: // input_token_details
			return fields(value, func(k key, value []byte, _ uint64) error {
				if k != 1<<3|withLength { // cached_tokens
					return nil
				}
				return unwrap(&m.usage.Cached, value)
			})
		}
		return nil
	})
}

// unwrap reads a UInt64Value. A count that no response has is left out.
func unwrap(to *int, value []byte) error {
	*to = 0
	return fields(value, func(k key, _ []byte, number uint64) error {
		if k == 1<<3|isVarint && number < 1<<40 {
			*to = int(number)
		}
		return nil
	})
}
