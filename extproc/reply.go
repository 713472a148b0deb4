package extproc

import (
	"fmt"
	"slices"
	"strconv"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	filter "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/ext_proc/v3"
	pb "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
)

// reply is one ProcessingResponse on its way: serialized, but for the body.
type reply struct {
	head []byte
	body mem.Buffer // its last bytes, or nil
}

// plain are the answers that change nothing, by what they answer.
var plain = [...][]byte{
	requestHeaders:   serialize(&pb.ProcessingResponse{Response: &pb.ProcessingResponse_RequestHeaders{RequestHeaders: &pb.HeadersResponse{}}}),
	responseHeaders:  serialize(&pb.ProcessingResponse{Response: &pb.ProcessingResponse_ResponseHeaders{ResponseHeaders: &pb.HeadersResponse{}}}),
	requestBody:      serialize(&pb.ProcessingResponse{Response: &pb.ProcessingResponse_RequestBody{RequestBody: &pb.BodyResponse{}}}),
	responseBody:     serialize(&pb.ProcessingResponse{Response: &pb.ProcessingResponse_ResponseBody{ResponseBody: &pb.BodyResponse{}}}),
	requestTrailers:  serialize(&pb.ProcessingResponse{Response: &pb.ProcessingResponse_RequestTrailers{RequestTrailers: &pb.TrailersResponse{}}}),
	responseTrailers: serialize(&pb.ProcessingResponse{Response: &pb.ProcessingResponse_ResponseTrailers{ResponseTrailers: &pb.TrailersResponse{}}}),
}

func plainReply(k kind) reply { return reply{head: plain[k]} }

// destination is what Envoy has to know about a decision.
type destination struct {
	value    string // "ip:port" or "ip:port,ip:port", the best first
	pool     string
	id       uint64 // of the decision, which explain looks for
	trailers bool   // the request has trailers
	tap      uint64 // the number under which a tap finds the request; 0: none is wanted
	replica  string // where a tap is wanted
	upgrade  bool
}

// decisionReply answers a message of this kind with the decision. response is
// the mode in which the response's body comes.
//
// Like all that is sent for each request, it is written field by field: with the
// generated types it would cost a tenth of a request's CPU time.
func (s *Server) decisionReply(k kind, d *destination, response bodyMode) reply {
	metadata := s.metadata(d)
	var answer, override []byte
	switch k {
	case requestHeaders, requestBody:
		// HeadersResponse or BodyResponse
		answer = field(responseNumber(k), field(1, s.commonResponse(d)))
	case requestTrailers:
		// A mutation would set a trailer.
		answer = plain[requestTrailers]
	}
	if k == requestHeaders && d.upgrade {
		// Without this Envoy waits for the end of a body that never ends. Body
		// modes are taken literally, the others are left as configured.
		override = field(9, // ProcessingMode
			varint(2, uint64(filter.ProcessingMode_SEND)), // response headers
			varint(3, uint64(modeNone)),                   // request body
			varint(4, uint64(response)))                   // response body
	}
	return reply{head: slices.Concat(answer, metadata, override)}
}

// commonResponse sets the destination. Envoy reads only raw_value, and removes
// before it sets, so that a value that the client sent cannot survive.
func (s *Server) commonResponse(d *destination) []byte {
	key := []byte(destinationKey)
	mutation := field(2, // HeaderMutation
		field(1, // HeaderValueOption
			field(1, field(1, key), field(3, []byte(d.value))), // HeaderValue
			varint(3, uint64(core.HeaderValueOption_OVERWRITE_IF_EXISTS_OR_ADD))),
		field(2, key)) // to be removed
	if s.cfg.EPP || d.trailers {
		// A drop-in for pickers that always do; and in duplex mode a request with
		// trailers has to leave a route with retries, where Envoy would send its
		// body twice.
		return append(mutation, varint(5, 1)...) // clear_route_cache
	}
	return mutation
}

// metadata tells the decision where no client can write. In a raw Envoy the pick
// must stay out of envoy.lb: there every key is a criterion of the subset that
// the fallback chooses from.
func (s *Server) metadata(d *destination) []byte {
	pick := entry(destinationKey, d.value)
	lb := entry("pool", d.pool)
	if s.cfg.EPP {
		lb = pick
	}
	own := slices.Concat(pick, decisionEntry(d.id))
	if d.trailers {
		own = append(own, entry("request-trailers", "true")...)
	}
	if d.tap != 0 {
		own = slices.Concat(own, entry(tapKey, strconv.FormatUint(d.tap, 16)), entry(replicaKey, d.replica))
	}
	return field(metadataNumber, space(ownSpace, own), space(lbSpace, lb))
}

const metadataNumber = 8 // ProcessingResponse.dynamic_metadata

// space is a namespace of metadata, and entry a text in it: both are
// Struct.fields.
func space(name string, entries []byte) []byte {
	return field(1, field(1, []byte(name)), field(2, field(5, entries))) // Value.struct_value
}

func entry(key, text string) []byte {
	return field(1, field(1, []byte(key)), field(2, field(3, []byte(text)))) // Value.string_value
}

// decisionEntry leads from Envoy's access log to the decision.
func decisionEntry(id uint64) []byte { return entry(decisionKey, decisionID(id)) }

// decisionID is written as scorers/replay names the decision.
func decisionID(id uint64) string { return fmt.Sprintf("%016x", id) }

// overrideReply answers response headers and asks for the body in another mode.
// Trailers must be asked for again, else Envoy 1.37 and 1.38 end the stream
// early.
func overrideReply(request, response bodyMode) reply {
	return reply{head: slices.Concat(plain[responseHeaders], field(9, // ProcessingMode
		varint(2, uint64(filter.ProcessingMode_SEND)),   // response headers
		varint(3, uint64(request)),                      // request body
		varint(4, uint64(response)),                     // response body
		varint(6, uint64(filter.ProcessingMode_SEND))))} // response trailers
}

// responseNumber is the number of the member of ProcessingResponse that answers
// a member of ProcessingRequest.
func responseNumber(k kind) protowire.Number { return protowire.Number(k) - 1 }

// field is a field with a length: its content is the parts.
func field(num protowire.Number, parts ...[]byte) []byte {
	n := 0
	for _, p := range parts {
		n += len(p)
	}
	b := make([]byte, 0, protowire.SizeTag(num)+protowire.SizeBytes(n))
	b = protowire.AppendTag(b, num, protowire.BytesType)
	b = protowire.AppendVarint(b, uint64(n))
	for _, p := range parts {
		b = append(b, p...)
	}
	return b
}

func varint(num protowire.Number, v uint64) []byte {
	return protowire.AppendVarint(protowire.AppendTag(nil, num, protowire.VarintType), v)
}

// echoReply gives a piece of a body back in duplex mode. It takes over body,
// which may be nil.
func echoReply(k kind, body mem.Buffer, endOfStream bool) reply {
	var n int
	if body != nil {
		n = body.Len()
	}
	// ProcessingResponse{k: BodyResponse{1: CommonResponse{3: BodyMutation{
	// 3: StreamedBodyResponse{2: endOfStream, 1: body}}}}}
	sizes := [4]int{n}
	if n > 0 {
		sizes[0] = 1 + protowire.SizeBytes(n)
	}
	if endOfStream {
		sizes[0] += 2
	}
	for i := 1; i < len(sizes); i++ {
		sizes[i] = 1 + protowire.SizeBytes(sizes[i-1])
	}
	head := make([]byte, 0, 32)
	for i, num := range [...]protowire.Number{responseNumber(k), 1, 3, 3} {
		head = protowire.AppendTag(head, num, protowire.BytesType)
		head = protowire.AppendVarint(head, uint64(sizes[len(sizes)-1-i]))
	}
	if endOfStream {
		head = protowire.AppendTag(head, 2, protowire.VarintType)
		head = protowire.AppendVarint(head, 1)
	}
	if n > 0 {
		head = protowire.AppendTag(head, 1, protowire.BytesType)
		head = protowire.AppendVarint(head, uint64(n))
	}
	return reply{head: head, body: body}
}

// refusalReply makes Envoy answer the client itself.
func refusalReply(r *refusal) reply {
	header := func(key, value string) *core.HeaderValueOption {
		return &core.HeaderValueOption{Header: &core.HeaderValue{Key: key, RawValue: []byte(value)}}
	}
	answer := serialize(&pb.ProcessingResponse{Response: &pb.ProcessingResponse_ImmediateResponse{
		ImmediateResponse: &pb.ImmediateResponse{
			Status: &typev3.HttpStatus{Code: typev3.StatusCode(r.reason.status())},
			Headers: &pb.HeaderMutation{SetHeaders: []*core.HeaderValueOption{
				header("content-type", "application/json"),
				header("x-gateway-reason", string(r.reason)),
			}},
			Body:    r.body(),
			Details: "warmpath_" + string(r.reason),
		},
	}})
	if r.decision != 0 {
		answer = append(answer, field(metadataNumber, space(ownSpace, decisionEntry(r.decision)))...)
	}
	return reply{head: answer}
}

func serialize(r *pb.ProcessingResponse) []byte {
	b, err := proto.Marshal(r)
	if err != nil { // only text that is not UTF-8 can do this
		panic("BUG: cannot serialize a reply: " + err.Error())
	}
	return b
}
