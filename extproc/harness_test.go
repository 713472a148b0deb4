package extproc

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	pb "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/warmpath/warmpath/extproc/route"
	"github.com/warmpath/warmpath/podstate"
	"github.com/warmpath/warmpath/podstate/prefix"
	"github.com/warmpath/warmpath/proto/configpb"
	"github.com/warmpath/warmpath/scorers"
)

const (
	podA = "10.0.0.1:8000"
	podB = "10.0.0.2:8000"
	podC = "[fd00::3]:8000"
)

// firstTwo picks the first two pods that the subset allows.
type firstTwo struct{}

func (firstTwo) Choose(req *scorers.Request, cands []podstate.Candidate) (first, second int) {
	first, second = -1, -1
	for i, c := range cands {
		if req.Subset != nil && !slices.Contains(req.Subset, c.Pod.Addr) {
			continue
		}
		if first < 0 {
			first = i
		} else {
			second = i
			break
		}
	}
	if first < 0 {
		req.Refusal = scorers.RefusalNoPod
		if req.Subset != nil {
			req.Refusal = scorers.RefusalSubset
		}
	}
	return first, second
}

// panics is a policy with a bug.
type panics struct{}

func (panics) Choose(*scorers.Request, []podstate.Candidate) (int, int) { panic("test") }

// gateway is a server under test, and what Envoy would be to it.
type gateway struct {
	t      testing.TB
	server *Server
	pools  []Pool
	reg    *prometheus.Registry
	client pb.ExternalProcessorClient
	conn   *grpc.ClientConn
	stop   context.CancelFunc // begins the shutdown
	ended  chan error         // Serve's result
}

// newPool makes a pool with a pod at each address.
func newPool(name string, policy Policy, addrs ...string) Pool {
	p := Pool{Name: name, Table: podstate.NewTable(), Index: prefix.NewIndex(1 << 20), Policy: policy}
	var specs []podstate.Spec
	for _, a := range addrs {
		specs = append(specs, podstate.Spec{Name: "pod-" + a, Addr: netip.MustParseAddrPort(a)})
	}
	p.Table.SetPods(specs)
	return p
}

// newGateway serves the pools, each with the model of its name.
func newGateway(t testing.TB, cfg Config, defaultPool string, pools ...Pool) *gateway {
	t.Helper()
	var rows []*configpb.Pool
	for _, p := range pools {
		rows = append(rows, &configpb.Pool{Name: p.Name, Models: []string{p.Name}, Adapters: []string{p.Name + "-lora"}})
	}
	router, err := route.New(rows, defaultPool)
	if err != nil {
		t.Fatal(err)
	}
	g := &gateway{t: t, pools: pools, reg: prometheus.NewRegistry(), ended: make(chan error, 1)}
	if cfg.TLS.Mode == "" {
		cfg.TLS.Mode = "off"
	}
	if cfg.DrainDelay == 0 {
		cfg.DrainDelay = time.Millisecond
	}
	if cfg.DrainTimeout == 0 {
		cfg.DrainTimeout = 30 * time.Second
	}
	g.server, err = New(cfg, router, pools, g.reg, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	lis := bufconn.Listen(1 << 20)
	ctx, stop := context.WithCancel(context.Background())
	g.stop = stop
	go func() { g.ended <- g.server.Serve(ctx, lis, nil) }()
	g.conn, err = grpc.NewClient("passthrough:///test",
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return lis.DialContext(ctx) }),
		grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	g.client = pb.NewExternalProcessorClient(g.conn)
	t.Cleanup(func() {
		g.noneInFlight()
		stop()
		if err := <-g.ended; err != nil {
			t.Errorf("Serve: %v", err)
		}
		g.conn.Close()
	})
	return g
}

// subtest is t.Run in virtual time, which stands still while anybody works: what
// depends on time comes out the same on a machine that stalls.
func subtest(t *testing.T, name string, f func(t *testing.T)) {
	t.Run(name, func(t *testing.T) { synctest.Test(t, f) })
}

func (g *gateway) inFlight() (n int) {
	for _, p := range g.pools {
		for _, c := range p.Table.Snapshot(time.Now()) {
			n += c.Charge.Requests
		}
	}
	return n
}

// noneInFlight fails unless all reservations come back soon.
func (g *gateway) noneInFlight() {
	g.t.Helper()
	if !eventually(func() bool { return g.inFlight() == 0 }) {
		g.t.Errorf("%d requests in flight after the test, want 0", g.inFlight())
	}
}

// eventually waits for what another goroutine is about to do.
func eventually(ok func() bool) bool {
	for deadline := time.Now().Add(30 * time.Second); time.Now().Before(deadline); time.Sleep(time.Millisecond) {
		if ok() {
			return true
		}
	}
	return ok()
}

// dialogue is one stream.
type dialogue struct {
	t      testing.TB
	stream pb.ExternalProcessor_ProcessClient
	cancel context.CancelFunc
	echoed strings.Builder // body that came back
}

func (g *gateway) open(t testing.TB) *dialogue {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	t.Cleanup(cancel)
	s, err := g.client.Process(ctx)
	if err != nil {
		t.Fatal(err)
	}
	return &dialogue{t: t, stream: s, cancel: cancel}
}

func (d *dialogue) send(m *pb.ProcessingRequest) {
	d.t.Helper()
	if err := d.stream.Send(m); err != nil && !errors.Is(err, io.EOF) { // EOF: the server has ended the stream, as Recv will tell
		d.t.Fatalf("send: %v", err)
	}
}

// expect reads as many answers as are wanted, and compares.
func (d *dialogue) expect(want ...string) {
	d.t.Helper()
	for i, w := range want {
		r, err := d.stream.Recv()
		if err != nil {
			d.t.Fatalf("answer %d of %q: %v", i, want, err)
		}
		d.echoed.Write(r.GetRequestBody().GetResponse().GetBodyMutation().GetStreamedResponse().GetBody())
		if got := describe(r); got != w {
			d.t.Fatalf("answer %d: got %q, want %q", i, got, w)
		}
	}
}

// expectEnd wants the end of the stream and no answer before it.
func (d *dialogue) expectEnd(want codes.Code) {
	d.t.Helper()
	r, err := d.stream.Recv()
	if err == nil {
		d.t.Fatalf("unsolicited answer %q", describe(r))
	}
	if errors.Is(err, io.EOF) {
		err = nil
	}
	if got := status.Code(err); got != want {
		d.t.Fatalf("stream ended with %v (%v), want %v", got, err, want)
	}
}

// describe writes an answer in short: what it answers, the pick if it carries
// one, an exclamation mark for end_of_stream.
func describe(r *pb.ProcessingResponse) string {
	var b strings.Builder
	common := func(kind string, c *pb.CommonResponse) {
		b.WriteString(kind)
		for _, h := range c.GetHeaderMutation().GetSetHeaders() {
			fmt.Fprintf(&b, " %s=%s", strings.TrimPrefix(h.GetHeader().GetKey(), "x-gateway-destination-"), h.GetHeader().GetRawValue())
			if !slices.Equal(c.GetHeaderMutation().GetRemoveHeaders(), []string{h.GetHeader().GetKey()}) {
				b.WriteString(" (not removed first)")
			}
		}
		if s := c.GetBodyMutation().GetStreamedResponse(); s != nil {
			fmt.Fprintf(&b, " echo %d", len(s.GetBody()))
			if s.GetEndOfStream() {
				b.WriteString("!")
			}
		}
		if c.GetClearRouteCache() {
			b.WriteString(" clear")
		}
	}
	switch v := r.GetResponse().(type) {
	case *pb.ProcessingResponse_RequestHeaders:
		common("headers", v.RequestHeaders.GetResponse())
	case *pb.ProcessingResponse_RequestBody:
		common("body", v.RequestBody.GetResponse())
	case *pb.ProcessingResponse_RequestTrailers:
		b.WriteString("trailers")
	case *pb.ProcessingResponse_ResponseHeaders:
		common("response-headers", v.ResponseHeaders.GetResponse())
	case *pb.ProcessingResponse_ResponseBody:
		common("response-body", v.ResponseBody.GetResponse())
	case *pb.ProcessingResponse_ResponseTrailers:
		b.WriteString("response-trailers")
	case *pb.ProcessingResponse_ImmediateResponse:
		fmt.Fprintf(&b, "immediate %d", v.ImmediateResponse.GetStatus().GetCode())
		for _, h := range v.ImmediateResponse.GetHeaders().GetSetHeaders() {
			if h.GetHeader().GetKey() == "x-gateway-reason" {
				fmt.Fprintf(&b, " %s", h.GetHeader().GetRawValue())
			}
		}
	default:
		b.WriteString("unset")
	}
	for _, space := range []string{"warmpath", "envoy.lb"} {
		f := r.GetDynamicMetadata().GetFields()[space].GetStructValue().GetFields()
		for _, key := range []string{destinationKey, "request-trailers", "pool"} {
			if v, ok := f[key]; ok {
				fmt.Fprintf(&b, " %s:%s", strings.Replace(space+"/"+key, destinationKey, "pick", 1), v.GetStringValue())
			}
		}
	}
	if o := r.GetModeOverride(); o != nil {
		fmt.Fprintf(&b, " override %v/%v", o.GetRequestBodyMode(), o.GetResponseBodyMode())
	}
	return b.String()
}

// Messages as Envoy writes them.

func headerMap(kv ...string) *core.HeaderMap {
	m := &core.HeaderMap{}
	for i := 0; i < len(kv); i += 2 {
		m.Headers = append(m.Headers, &core.HeaderValue{Key: kv[i], RawValue: []byte(kv[i+1])})
	}
	return m
}

func reqHeaders(end bool, more ...string) *pb.ProcessingRequest {
	kv := append([]string{":method", "POST", ":path", "/v1/chat/completions", ":authority", "gw", "content-type", "application/json"}, more...)
	return &pb.ProcessingRequest{Request: &pb.ProcessingRequest_RequestHeaders{
		RequestHeaders: &pb.HttpHeaders{Headers: headerMap(kv...), EndOfStream: end}}}
}

func reqBody(body string, end bool) *pb.ProcessingRequest {
	return &pb.ProcessingRequest{Request: &pb.ProcessingRequest_RequestBody{
		RequestBody: &pb.HttpBody{Body: []byte(body), EndOfStream: end}}}
}

func reqTrailers() *pb.ProcessingRequest {
	return &pb.ProcessingRequest{Request: &pb.ProcessingRequest_RequestTrailers{
		RequestTrailers: &pb.HttpTrailers{Trailers: headerMap("x-checksum", "1")}}}
}

func respHeaders(end bool, status, served string, attempts int, more ...string) *pb.ProcessingRequest {
	m := &pb.ProcessingRequest{Request: &pb.ProcessingRequest_ResponseHeaders{
		ResponseHeaders: &pb.HttpHeaders{Headers: headerMap(append([]string{":status", status}, more...)...), EndOfStream: end}}}
	if served != "" {
		m.Attributes = map[string]*structpb.Struct{"envoy.filters.http.ext_proc": {Fields: map[string]*structpb.Value{
			"upstream.address":               structpb.NewStringValue(served),
			"upstream.request_attempt_count": structpb.NewNumberValue(float64(attempts)),
		}}}
	}
	return m
}

func respBody(body string, end bool) *pb.ProcessingRequest {
	return &pb.ProcessingRequest{Request: &pb.ProcessingRequest_ResponseBody{
		ResponseBody: &pb.HttpBody{Body: []byte(body), EndOfStream: end}}}
}

func respTrailers() *pb.ProcessingRequest {
	return &pb.ProcessingRequest{Request: &pb.ProcessingRequest_ResponseTrailers{ResponseTrailers: &pb.HttpTrailers{}}}
}

// in adds what Envoy sends with its first message.
func in(m *pb.ProcessingRequest, p protocol) *pb.ProcessingRequest {
	m.ProtocolConfig = &pb.ProtocolConfiguration{
		RequestBodyMode: p.request, ResponseBodyMode: p.response, SendBodyWithoutWaitingForHeaderResponse: p.unwaited}
	return m
}

func withSubset(m *pb.ProcessingRequest, v *structpb.Value) *pb.ProcessingRequest {
	m.MetadataContext = &core.Metadata{FilterMetadata: map[string]*structpb.Struct{
		subsetSpace: {Fields: map[string]*structpb.Value{subsetKey: v}}}}
	return m
}
