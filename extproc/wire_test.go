package extproc

import (
	"bytes"
	"reflect"
	"slices"
	"strings"
	"testing"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	pb "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"
)

// read reads a message as the server does, from buffers of this size.
func read(t testing.TB, b []byte, size int) (message, error) {
	t.Helper()
	var data mem.BufferSlice
	for piece := range slicesOf(b, size) {
		data = append(data, mem.SliceBuffer(piece))
	}
	var m message
	err := newCodec(new(bufferPool)).Unmarshal(data, &m)
	return m, err
}

// reference reads the same with the generated types.
func reference(p *pb.ProcessingRequest) (m message) {
	add := func(h *pb.HttpHeaders) {
		m.headers.contentLength = -1
		m.endOfStream = h.GetEndOfStream()
		for _, v := range h.GetHeaders().GetHeaders() {
			value := string(v.GetRawValue())
			if value == "" {
				value = v.GetValue()
			}
			switch v.GetKey() {
			case ":path":
				m.headers.path = value
			case subsetKey:
				m.headers.subset, m.headers.hasSubset = value, true
			case "upgrade":
				m.headers.upgrade = true
			case ":method":
				m.headers.upgrade = m.headers.upgrade || value == "CONNECT"
			}
		}
	}
	body := func(b *pb.HttpBody) {
		m.endOfStream = b.GetEndOfStream()
		if len(b.GetBody()) > 0 {
			m.body = mem.SliceBuffer(b.GetBody())
		}
	}
	switch v := p.GetRequest().(type) {
	case *pb.ProcessingRequest_RequestHeaders:
		m.kind = requestHeaders
		add(v.RequestHeaders)
	case *pb.ProcessingRequest_ResponseHeaders:
		m.kind = responseHeaders
		add(v.ResponseHeaders)
	case *pb.ProcessingRequest_RequestBody:
		m.kind = requestBody
		body(v.RequestBody)
	case *pb.ProcessingRequest_ResponseBody:
		m.kind = responseBody
		body(v.ResponseBody)
	case *pb.ProcessingRequest_RequestTrailers:
		m.kind = requestTrailers
	case *pb.ProcessingRequest_ResponseTrailers:
		m.kind = responseTrailers
	}
	m.observe = p.GetObservabilityMode()
	if c := p.GetProtocolConfig(); c != nil {
		m.config = &protocol{request: c.GetRequestBodyMode(), response: c.GetResponseBodyMode(), unwaited: c.GetSendBodyWithoutWaitingForHeaderResponse()}
	}
	return m
}

func FuzzUnmarshal(f *testing.F) {
	seed := func(p *pb.ProcessingRequest) {
		b, err := proto.Marshal(p)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	seed(in(reqHeaders(true, "content-length", "12", "upgrade", "websocket", subsetKey, "a,b"), unwaited))
	seed(withSubset(reqBody(strings.Repeat("x", 3000), true), structpb.NewStringValue("a")))
	seed(respHeaders(false, "503", podC, 3))
	seed(reqTrailers())
	seed(respTrailers())
	seed(&pb.ProcessingRequest{ObservabilityMode: true})
	f.Fuzz(func(t *testing.T, b []byte) {
		read(t, b, 1000) // it must not panic; whether it finds a fault does not matter
		var p pb.ProcessingRequest
		if proto.Unmarshal(b, &p) != nil {
			return
		}
		// Written canonically: two values of one field, which Envoy never sends, are
		// merged by protobuf and not by us.
		b, merr := proto.Marshal(&p)
		if merr != nil {
			t.Skip("not UTF-8")
		}
		got, err := read(t, b, 1000)
		if err != nil {
			t.Fatalf("a valid message: %v", err)
		}
		want := reference(&p)
		var gotBody, wantBody []byte
		if got.body != nil {
			gotBody = got.body.ReadOnlyData()
		}
		if want.body != nil {
			wantBody = want.body.ReadOnlyData()
		}
		if !bytes.Equal(gotBody, wantBody) {
			t.Errorf("body %q, want %q", gotBody, wantBody)
		}
		if got.kind != want.kind || got.endOfStream != want.endOfStream || got.observe != want.observe {
			t.Errorf("got %+v, want %+v", got, want)
		}
		if !reflect.DeepEqual(got.config, want.config) {
			t.Errorf("protocol %+v, want %+v", got.config, want.config)
		}
		g, w := got.headers, want.headers
		if g.path != w.path || g.upgrade != w.upgrade || g.subset != w.subset || g.hasSubset != w.hasSubset {
			t.Errorf("headers %+v, want %+v", g, w)
		}
	})
}

func TestUnmarshal(t *testing.T) {
	tests := []struct {
		name string
		in   *pb.ProcessingRequest
		ok   func(m *message) bool
	}{
		{"served address and attempts come as attributes", respHeaders(false, "503", podC, 3), func(m *message) bool {
			return m.served == podC && m.attempts == 3 && m.headers.status == 503
		}},
		{"the name of the filter does not matter", &pb.ProcessingRequest{Attributes: map[string]*structpb.Struct{
			"other": {Fields: map[string]*structpb.Value{"upstream.address": structpb.NewStringValue(podA)}}}}, func(m *message) bool {
			return m.served == podA
		}},
		{"served address as metadata", &pb.ProcessingRequest{MetadataContext: &core.Metadata{FilterMetadata: map[string]*structpb.Struct{
			lbSpace: {Fields: map[string]*structpb.Value{servedKey: structpb.NewStringValue(podB)}}}}}, func(m *message) bool {
			return m.served == podB
		}},
		{"metadata of strangers are not read", &pb.ProcessingRequest{MetadataContext: &core.Metadata{FilterMetadata: map[string]*structpb.Struct{
			"other": {Fields: map[string]*structpb.Value{servedKey: structpb.NewStringValue(podB), subsetKey: structpb.NewStringValue(podB)}}}}}, func(m *message) bool {
			return m.served == "" && !m.hasSub
		}},
		{"a list may hold lists and texts with commas", withSubset(&pb.ProcessingRequest{}, structpb.NewListValue(&structpb.ListValue{Values: []*structpb.Value{
			structpb.NewStringValue("a, b"), structpb.NewNumberValue(1), structpb.NewStringValue("c")}})), func(m *message) bool {
			return m.hasSub && slices.Equal(m.subset, []string{"a", "b", "c"})
		}},
		{"value is read where raw_value is missing", &pb.ProcessingRequest{Request: &pb.ProcessingRequest_RequestHeaders{RequestHeaders: &pb.HttpHeaders{
			Headers: &core.HeaderMap{Headers: []*core.HeaderValue{{Key: ":path", Value: "/v1/x"}}}}}}, func(m *message) bool {
			return m.headers.path == "/v1/x"
		}},
		{"a content-length that is no number is unknown", reqHeaders(false, "content-length", "-5"), func(m *message) bool {
			return m.headers.contentLength == -1
		}},
		{"an event stream is told from JSON", respHeaders(false, "200", "", 0, "content-type", "text/event-stream; charset=utf-8"), func(m *message) bool {
			return m.headers.eventStream
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			b, err := proto.Marshal(tt.in)
			if err != nil {
				t.Fatal(err)
			}
			m, err := read(t, b, 1<<20)
			if err != nil || !tt.ok(&m) {
				t.Errorf("read as %+v, %v", m, err)
			}
		})
	}
}

func TestBufferPool(t *testing.T) {
	var p bufferPool
	for _, n := range []int{0, 1, 1023, 1024, 1025, 8 << 20, 8<<20 + 1} {
		b := p.Get(n)
		if len(*b) != n {
			t.Errorf("Get(%d) has %d bytes", n, len(*b))
		}
		*b = (*b)[:0]
		p.Put(b)
	}
	foreign := make([]byte, 3000)
	p.Put(&foreign) // not of a tier: must not come back as 4096
	if b := p.Get(4096); len(*b) != 4096 {
		t.Errorf("%d bytes, want 4096", len(*b))
	}
}
