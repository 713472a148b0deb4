package extproc

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"

	extproc "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/ext_proc/v3"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/warmpath/warmpath/extproc/openai"
)

// bodyMode is how Envoy sends a body.
type bodyMode = extproc.ProcessingMode_BodySendMode

const (
	modeNone     = extproc.ProcessingMode_NONE
	modeBuffered = extproc.ProcessingMode_BUFFERED
	modePartial  = extproc.ProcessingMode_BUFFERED_PARTIAL
	modeStreamed = extproc.ProcessingMode_STREAMED
	modeDuplex   = extproc.ProcessingMode_FULL_DUPLEX_STREAMED
)

// kind is which member of ProcessingRequest.request is set. The values are the
// members' field numbers.
type kind uint8

const (
	unset            kind = 0 // to be tolerated: Envoy 1.40 can send flow control alone
	requestHeaders   kind = 2
	responseHeaders  kind = 3
	requestBody      kind = 4
	responseBody     kind = 5
	requestTrailers  kind = 6
	responseTrailers kind = 7
)

// Names that the picker protocol of the Gateway API Inference Extension gives to
// headers and to keys of metadata.
const (
	destinationKey = "x-gateway-destination-endpoint"
	servedKey      = "x-gateway-destination-endpoint-served"
	subsetKey      = "x-gateway-destination-endpoint-subset"
	subsetSpace    = "envoy.lb.subset_hint"
	lbSpace        = "envoy.lb"
	ownSpace       = "warmpath"
)

// Keys of our own namespace, for the access log and the tap filter of warmpath's
// bootstrap.
const (
	decisionKey = "decision" // what warmpath explain takes
	tapKey      = "tap"      // a number in hexadecimal: the response is wanted
	replicaKey  = "replica"  // host:port of the process that wants it
)

// message is what a stream needs of one ProcessingRequest. It is read straight
// from the wire: a request has some twenty headers of which five matter, and its
// body must not be copied.
type message struct {
	kind        kind
	endOfStream bool
	observe     bool      // Envoy does not want an answer
	config      *protocol // on the first message of a stream
	headers     headers   // of requestHeaders and responseHeaders

	// body is a piece of the body, or nil. It is the reader's: free it.
	body mem.Buffer

	// From metadata_context and attributes, which may come with any message.
	subset   []string // pods that the gateway allows; meaningful if hasSubset
	hasSub   bool
	served   string       // ip:port of the pod that answered
	attempts int          // times that Envoy has tried pods for this request
	tap      uint64       // the number under which a tap finds the request; 0: none
	usage    openai.Usage // that Envoy has read in the response; meaningful if hasUsage
	hasUsage bool
}

// protocol is ProtocolConfiguration.
type protocol struct {
	request, response bodyMode
	unwaited          bool // STREAMED: bodies come before the headers are answered
}

func (p *protocol) unmarshal(b []byte) error {
	return fields(b, func(k key, _ []byte, number uint64) error {
		switch k {
		case 1<<3 | isVarint:
			p.request = bodyMode(number)
		case 2<<3 | isVarint:
			p.response = bodyMode(number)
		case 3<<3 | isVarint:
			p.unwaited = number != 0
		}
		return nil
	})
}

// headers are those that matter.
type headers struct {
	path          string
	status        int
	contentLength int64 // -1: unknown
	upgrade       bool  // the connection turns into something that has no body
	eventStream   bool  // content-type says so
	json          bool  // or this
	encoded       bool  // the body is compressed
	subset        string
	hasSubset     bool
}

// unmarshal reads data into m. The body becomes a view into data.
func (m *message) unmarshal(data mem.Buffer) error {
	*m = message{}
	return fields(data.ReadOnlyData(), func(k key, value []byte, number uint64) error {
		switch k {
		case 2<<3 | withLength, 3<<3 | withLength, 4<<3 | withLength, 5<<3 | withLength, 6<<3 | withLength, 7<<3 | withLength:
			m.kind = kind(k >> 3)
			return m.unmarshalRequest(value, data)
		case 8<<3 | withLength:
			return m.unmarshalMetadata(value)
		case 9<<3 | withLength:
			return m.unmarshalAttributes(value)
		case 10<<3 | isVarint:
			m.observe = number != 0
		case 11<<3 | withLength:
			m.config = &protocol{}
			return m.config.unmarshal(value)
		}
		return nil
	})
}

func (m *message) unmarshalRequest(b []byte, data mem.Buffer) error {
	m.freeBody()
	m.headers = headers{contentLength: -1}
	headers := m.kind == requestHeaders || m.kind == responseHeaders
	body := m.kind == requestBody || m.kind == responseBody
	return fields(b, func(k key, value []byte, number uint64) error {
		switch {
		case headers && k == 1<<3|withLength: // HeaderMap
			return fields(value, func(k key, value []byte, _ uint64) error {
				if k != 1<<3|withLength {
					return nil
				}
				return m.headers.add(value)
			})
		case headers && k == 3<<3|isVarint, body && k == 2<<3|isVarint:
			m.endOfStream = number != 0
		case body && k == 1<<3|withLength:
			m.freeBody()
			if len(value) > 0 {
				// value lies within data and runs to the same end of memory.
				start := cap(data.ReadOnlyData()) - cap(value)
				m.body = data.Slice(start, start+len(value))
			}
		}
		return nil
	})
}

func (m *message) freeBody() {
	if m.body != nil {
		m.body.Free()
		m.body = nil
	}
}

// add reads one HeaderValue. Envoy sends raw_value; other proxies may not.
func (h *headers) add(b []byte) error {
	var name, value []byte
	err := fields(b, func(k key, v []byte, _ uint64) error {
		switch k {
		case 1<<3 | withLength:
			name = v
		case 2<<3 | withLength, 3<<3 | withLength:
			if len(v) > 0 {
				value = v
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	switch string(name) {
	case ":path":
		h.path = string(value)
	case ":method":
		h.upgrade = h.upgrade || string(value) == "CONNECT"
	case ":status":
		h.status, _ = strconv.Atoi(string(value))
	case "content-length":
		if n, err := strconv.ParseInt(string(value), 10, 64); err == nil && n >= 0 {
			h.contentLength = n
		}
	case "content-type":
		h.eventStream = strings.HasPrefix(string(value), "text/event-stream")
		h.json = strings.HasPrefix(string(value), "application/json")
	case "content-encoding":
		h.encoded = len(value) > 0 && string(value) != "identity"
	case "upgrade":
		h.upgrade = true
	case subsetKey:
		h.subset, h.hasSubset = string(value), true
	}
	return nil
}

// unmarshalMetadata reads config.core.v3.Metadata: the subset hint of the
// gateway, the pod that answered, and what warmpath and Envoy noted themselves.
func (m *message) unmarshalMetadata(b []byte) error {
	return fields(b, func(k key, entry []byte, _ uint64) error {
		switch k {
		case 1<<3 | withLength: // filter_metadata
		case 2<<3 | withLength: // typed_filter_metadata
			return m.unmarshalTyped(entry)
		default:
			return nil
		}
		space, value, err := mapEntry(entry)
		if err != nil {
			return err
		}
		switch string(space) {
		case subsetSpace:
			return structFields(value, func(name, value []byte) error {
				if string(name) != subsetKey {
					return nil
				}
				m.subset, m.hasSub = []string{}, true
				return m.addSubset(value)
			})
		case lbSpace, ownSpace:
			return structFields(value, func(name, value []byte) error {
				if string(name) != servedKey && string(name) != tapKey {
					return nil
				}
				return fields(value, func(k key, text []byte, _ uint64) error {
					switch {
					case k != 3<<3|withLength: // Value.string_value
					case string(name) == servedKey:
						m.served = string(text)
					default:
						m.tap, _ = strconv.ParseUint(string(text), 16, 64)
					}
					return nil
				})
			})
		}
		return nil
	})
}

// addSubset reads a subset hint, which gateways write as a list or as a text with
// commas. What is neither allows no pod: failing open would send requests where
// the gateway does not want them.
func (m *message) addSubset(value []byte) error {
	return fields(value, func(k key, b []byte, _ uint64) error {
		switch k {
		case 3<<3 | withLength: // Value.string_value
			m.subset = append(m.subset, splitSubset(string(b))...)
		case 6<<3 | withLength: // Value.list_value
			return fields(b, func(k key, element []byte, _ uint64) error {
				if k != 1<<3|withLength {
					return nil
				}
				return m.addSubset(element)
			})
		}
		return nil
	})
}

func splitSubset(s string) []string {
	subset := []string{}
	for e := range strings.SplitSeq(s, ",") {
		if e = strings.TrimSpace(e); e != "" {
			subset = append(subset, e)
		}
	}
	return subset
}

// unmarshalAttributes reads one entry of ProcessingRequest.attributes. Its key is
// the name of the filter, which differs between gateways.
func (m *message) unmarshalAttributes(entry []byte) error {
	_, value, err := mapEntry(entry)
	if err != nil {
		return err
	}
	return structFields(value, func(name, value []byte) error {
		return fields(value, func(k key, text []byte, number uint64) error {
			switch {
			case k == 3<<3|withLength && string(name) == "upstream.address" && len(text) > 0:
				m.served = string(text)
			case k == 2<<3|is64Bits && string(name) == "upstream.request_attempt_count":
				m.attempts = int(math.Float64frombits(number))
			}
			return nil
		})
	})
}

// structFields calls f for each field of a google.protobuf.Struct.
func structFields(b []byte, f func(name, value []byte) error) error {
	return fields(b, func(k key, entry []byte, _ uint64) error {
		if k != 1<<3|withLength {
			return nil
		}
		name, value, err := mapEntry(entry)
		if err != nil {
			return err
		}
		return f(name, value)
	})
}

func mapEntry(b []byte) (name, value []byte, err error) {
	err = fields(b, func(k key, v []byte, _ uint64) error {
		switch k {
		case 1<<3 | withLength:
			name = v
		case 2<<3 | withLength:
			value = v
		}
		return nil
	})
	return name, value, err
}

var errWire = errors.New("not a valid protobuf message")

// key is what precedes a field on the wire: its number, and in the last three
// bits its type.
type key uint64

const (
	isVarint   = key(protowire.VarintType)
	is64Bits   = key(protowire.Fixed64Type)
	withLength = key(protowire.BytesType)
)

// fields calls f for each field of a message: with its bytes if it has a length,
// else with its number.
func fields(b []byte, f func(k key, value []byte, number uint64) error) error {
	for len(b) > 0 {
		num, typ, n := protowire.ConsumeTag(b)
		if n < 0 {
			return fmt.Errorf("%w: %w", errWire, protowire.ParseError(n))
		}
		b = b[n:]
		var value []byte
		var number uint64
		switch typ {
		case protowire.BytesType:
			value, n = protowire.ConsumeBytes(b)
		case protowire.VarintType:
			number, n = protowire.ConsumeVarint(b)
		case protowire.Fixed64Type:
			number, n = protowire.ConsumeFixed64(b)
		default: // nothing that we read
			n = protowire.ConsumeFieldValue(num, typ, b)
		}
		if n < 0 {
			return fmt.Errorf("%w: field %d: %w", errWire, num, protowire.ParseError(n))
		}
		if err := f(key(protowire.EncodeTag(num, typ)), value, number); err != nil {
			return err
		}
		b = b[n:]
	}
	return nil
}
