package extproc

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	pb "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/proto"

	"github.com/warmpath/warmpath/extproc/openai"
)

// BenchmarkRoundTrip plays Envoy in duplex mode against warmpath and against the
// floor, each in a process of its own, in turns, and prints warmpath's cost as
// multiples of the floor's. What a turn begins with (a connection, warm caches)
// is played before it counts.
func BenchmarkRoundTrip(b *testing.B) {
	for _, c := range []struct {
		bytes, pods, streams int
	}{
		{4 << 10, 16, 1},
		{4 << 10, 16, 16},
		{200 << 10, 16, 1},
		{200 << 10, 16, 16},
		{4 << 10, 1000, 16},
	} {
		b.Run(fmt.Sprintf("%dKB/pods=%d/streams=%d", c.bytes>>10, c.pods, c.streams), func(b *testing.B) {
			ours, floor := newLoad(b, fmt.Sprint(c.pods), c.bytes), newLoad(b, "floor", c.bytes)
			for _, l := range []*load{ours, floor} {
				l.run(64*c.streams, c.streams)
				l.reset()
			}
			const turn = 50 // requests a stream and turn
			b.ResetTimer()
			for done := 0; done < b.N; done += turn * c.streams {
				n := min(turn*c.streams, b.N-done)
				floor.run(n, c.streams)
				ours.run(n, c.streams)
			}
			b.StopTimer()
			b.ReportMetric(0, "ns/op") // the sum of both means nothing
			b.ReportMetric(ours.cpuPerRequest(), "cpu-µs/req")
			b.ReportMetric(ours.cpuPerRequest()/floor.cpuPerRequest(), "×floor-cpu")
			b.ReportMetric(float64(ours.quantile(0.5).Nanoseconds())/1e3, "p50-µs")
			b.ReportMetric(float64(ours.quantile(0.5))/float64(floor.quantile(0.5)), "×floor-p50")
			b.ReportMetric(ours.rate(), "req/s")
			b.ReportMetric(ours.rate()/floor.rate(), "×floor-rate")
		})
	}
}

// BenchmarkPaced sends 1,000 requests of 8 KB a second, whatever the answers do,
// and prints what warmpath adds to the floor's latency.
func BenchmarkPaced(b *testing.B) {
	const bytes, pods, rate = 8 << 10, 16, 1000
	ours, floor := newLoad(b, fmt.Sprint(pods), bytes), newLoad(b, "floor", bytes)
	for _, l := range []*load{ours, floor} {
		l.run(200, 4)
		l.reset()
	}
	b.ResetTimer()
	for done := 0; done < b.N; done += rate / 2 { // half a second each, in turns
		n := min(rate/2, b.N-done)
		floor.pace(n, time.Second/rate)
		ours.pace(n, time.Second/rate)
	}
	b.StopTimer()
	b.ReportMetric(0, "ns/op")
	for _, q := range []float64{0.5, 0.99} {
		added := ours.quantile(q) - floor.quantile(q)
		b.ReportMetric(float64(added.Nanoseconds())/1e3, fmt.Sprintf("added-p%.0f-µs", q*100))
	}
	b.ReportMetric(float64(ours.quantile(0.99).Nanoseconds())/1e3, "p99-µs")
}

// load plays Envoy against one server.
type load struct {
	b      *testing.B
	server *process
	conn   *grpc.ClientConn
	bodies [][]byte // requests' messages, serialized

	busy      time.Duration // CPU time of the server
	wall      time.Duration
	latencies []time.Duration
}

func newLoad(b *testing.B, kind string, bytes int) *load {
	l := &load{b: b, server: startBench(b, kind)}
	var err error
	l.conn, err = grpc.NewClient(l.server.addr, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithInitialWindowSize(1<<20), grpc.WithInitialConnWindowSize(16<<20),
		grpc.WithDefaultCallOptions(grpc.ForceCodec(rawCodec{}), grpc.MaxCallRecvMsgSize(64<<20)))
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { l.conn.Close() })
	for i := range 64 {
		l.bodies = append(l.bodies, raw(b, reqBody(prompt(i, bytes), false)))
	}
	return l
}

// prompt is a conversation of so many bytes. Groups of eight share three
// quarters of it.
func prompt(i, bytes int) string {
	var s strings.Builder
	words := rand.New(rand.NewPCG(1, uint64(i/8)))
	s.WriteString(`{"model":"m","stream":true,"max_tokens":200,"messages":[{"role":"system","content":"`)
	for s.Len() < bytes-40 {
		if s.Len() > bytes*3/4 {
			words = rand.New(rand.NewPCG(uint64(i), uint64(s.Len())))
		}
		fmt.Fprintf(&s, "%x ", words.Uint32()>>uint(words.IntN(24)))
	}
	s.WriteString(`"},{"role":"user","content":"go on\n"}]}`)
	return s.String()
}

var spoken = struct{ head, end, response []byte }{}

// speak serializes the messages that are the same for all requests: the headers
// of a usual client behind Envoy, the end of the body, and the response.
func speak(b *testing.B) {
	head := reqHeaders(false, "x-forwarded-for", "10.1.2.3", "x-forwarded-proto", "http", "x-request-id", "6f3a4e0c-8d0b-4a55-9b5e-3a9a1d7b2c11",
		"user-agent", "OpenAI/Python 1.99.0", "accept", "application/json", "accept-encoding", "gzip, deflate", "authorization", "Bearer sk-0123456789abcdef0123456789abcdef",
		"x-stainless-lang", "python", "x-stainless-os", "Linux", "x-stainless-arch", "x64", "x-stainless-runtime", "CPython", "x-stainless-retry-count", "0", "x-envoy-internal", "true")
	head.MetadataContext = &core.Metadata{}
	spoken.head = raw(b, in(head, duplex))
	spoken.end = raw(b, reqBody("", true))
	spoken.response = raw(b, respHeaders(false, "200", podA, 1, "content-type", "text/event-stream", "server", "uvicorn", "date", "Mon, 01 Jan 2026 00:00:00 GMT", "transfer-encoding", "chunked"))
}

func raw(b *testing.B, m *pb.ProcessingRequest) []byte {
	bytes, err := proto.Marshal(m)
	if err != nil {
		b.Fatal(err)
	}
	return bytes
}

// run plays n requests on so many streams at a time.
func (l *load) run(n, streams int) {
	if spoken.head == nil {
		speak(l.b)
	}
	var next atomic.Int64
	var mu sync.Mutex
	var wg sync.WaitGroup
	cpu, begun := l.server.cpu(), time.Now()
	for range streams {
		wg.Go(func() {
			var latencies []time.Duration
			for i := next.Add(1); i <= int64(n); i = next.Add(1) {
				t, err := l.request(l.bodies[int(i)%len(l.bodies)])
				if err != nil {
					l.b.Error(err)
					return
				}
				latencies = append(latencies, t)
			}
			mu.Lock()
			l.latencies = append(l.latencies, latencies...)
			mu.Unlock()
		})
	}
	wg.Wait()
	l.wall += time.Since(begun)
	l.busy += l.server.cpu() - cpu
}

// pace plays n requests, one after each interval.
func (l *load) pace(n int, interval time.Duration) {
	latencies := make([]time.Duration, n)
	tick := time.NewTicker(interval)
	defer tick.Stop()
	var wg sync.WaitGroup
	for i := range n {
		<-tick.C
		wg.Go(func() {
			var err error
			if latencies[i], err = l.request(l.bodies[i%len(l.bodies)]); err != nil {
				l.b.Error(err)
			}
		})
	}
	wg.Wait()
	l.latencies = append(l.latencies, latencies...)
}

// request plays one request and returns the time from its last byte to the last
// byte of the echo.
func (l *load) request(body []byte) (time.Duration, error) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	s, err := l.conn.NewStream(ctx, &grpc.StreamDesc{ClientStreams: true, ServerStreams: true}, pb.ExternalProcessor_Process_FullMethodName)
	if err != nil {
		return 0, err
	}
	begun := time.Now()
	for _, m := range [][]byte{spoken.head, body, spoken.end} {
		if err := s.SendMsg(m); err != nil {
			return 0, err
		}
	}
	for got := 0; got < len(body); {
		var answer []byte
		if err := s.RecvMsg(&answer); err != nil {
			return 0, err
		}
		got += len(answer)
	}
	latency := time.Since(begun)
	if err := s.SendMsg(spoken.response); err != nil {
		return 0, err
	}
	var answer []byte
	if err := s.RecvMsg(&answer); err != nil {
		return 0, err
	}
	return latency, nil // and a reset, as Envoy ends a stream
}

func (l *load) reset() { l.busy, l.wall, l.latencies = 0, 0, nil }

func (l *load) cpuPerRequest() float64 {
	return float64(l.busy.Microseconds()) / float64(len(l.latencies))
}

func (l *load) quantile(q float64) time.Duration {
	slices.Sort(l.latencies)
	return l.latencies[int(q*float64(len(l.latencies)))]
}

func (l *load) rate() float64 { return float64(len(l.latencies)) / l.wall.Seconds() }

// rawCodec passes serialized messages, to keep the load light.
type rawCodec struct{}

func (rawCodec) Name() string                  { return "proto" }
func (rawCodec) Marshal(v any) ([]byte, error) { return v.([]byte), nil }
func (rawCodec) Unmarshal(b []byte, v any) error {
	*v.(*[]byte) = b
	return nil
}

// BenchmarkDecide is a decision without gRPC.
func BenchmarkDecide(b *testing.B) {
	for _, pods := range []int{16, 1000} {
		for _, bytes := range []int{4 << 10, 200 << 10} {
			b.Run(fmt.Sprintf("%dKB/pods=%d", bytes>>10, pods), func(b *testing.B) {
				s, err := benchServer(pods)
				if err != nil {
					b.Fatal(err)
				}
				var bodies [][]byte
				for i := range 64 {
					bodies = append(bodies, []byte(prompt(i, bytes)))
				}
				b.SetBytes(int64(bytes))
				b.ReportAllocs()
				for i := 0; b.Loop(); i++ {
					d, r := s.decide(&question{api: openai.Chat, body: bodies[i%len(bodies)], whole: true})
					if r != nil {
						b.Fatal(r)
					}
					d.reservation.Release(time.Now())
				}
			})
		}
	}
}
