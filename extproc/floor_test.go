package extproc

import (
	"bufio"
	"context"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	pb "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"

	"github.com/warmpath/warmpath/extproc/route"
	"github.com/warmpath/warmpath/podstate"
	"github.com/warmpath/warmpath/proto/configpb"
	"github.com/warmpath/warmpath/scorers"
)

// serverEnv makes the test binary a server for the benchmarks, so that the CPU
// time of the server can be told from that of the load.
const serverEnv = "WARMPATH_BENCH_SERVER"

func TestMain(m *testing.M) {
	if kind := os.Getenv(serverEnv); kind != "" {
		if err := serveBench(kind); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

// floor is the smallest ext_proc server for duplex mode: a constant destination,
// the body echoed, nothing else.
type floor struct {
	pb.UnimplementedExternalProcessorServer
}

func (floor) Process(s pb.ExternalProcessor_ProcessServer) error {
	var pieces [][]byte
	for {
		m, err := s.Recv()
		if err != nil {
			return nil
		}
		switch v := m.Request.(type) {
		case *pb.ProcessingRequest_RequestBody:
			pieces = append(pieces, v.RequestBody.Body)
			if !v.RequestBody.EndOfStream {
				continue
			}
			err = s.Send(&pb.ProcessingResponse{Response: &pb.ProcessingResponse_RequestHeaders{RequestHeaders: &pb.HeadersResponse{
				Response: &pb.CommonResponse{HeaderMutation: &pb.HeaderMutation{SetHeaders: []*core.HeaderValueOption{{
					Header: &core.HeaderValue{Key: destinationKey, RawValue: []byte(podA)}}}}}}}})
			for i, p := range pieces {
				if len(p) == 0 && i > 0 {
					continue
				}
				end := i == len(pieces)-1 || i == len(pieces)-2 && len(pieces[i+1]) == 0
				if e := s.Send(&pb.ProcessingResponse{Response: &pb.ProcessingResponse_RequestBody{RequestBody: &pb.BodyResponse{
					Response: &pb.CommonResponse{BodyMutation: &pb.BodyMutation{Mutation: &pb.BodyMutation_StreamedResponse{
						StreamedResponse: &pb.StreamedBodyResponse{Body: p, EndOfStream: end}}}}}}}); e != nil {
					err = e
				}
			}
		case *pb.ProcessingRequest_ResponseHeaders:
			err = s.Send(&pb.ProcessingResponse{Response: &pb.ProcessingResponse_ResponseHeaders{ResponseHeaders: &pb.HeadersResponse{}}})
		}
		if err != nil {
			return nil
		}
	}
}

// serveBench serves "floor", or warmpath with so many pods, until its standard
// input ends. Each line on the input is answered with the CPU time used so far.
func serveBench(kind string) error {
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if kind == "floor" {
		g := grpc.NewServer(grpc.MaxRecvMsgSize(64 << 20))
		pb.RegisterExternalProcessorServer(g, floor{})
		go g.Serve(lis)
	} else {
		n, err := strconv.Atoi(kind)
		if err != nil {
			return err
		}
		s, err := benchServer(n)
		if err != nil {
			return err
		}
		go s.Serve(ctx, lis, nil)
	}
	fmt.Println(lis.Addr())
	for in := bufio.NewScanner(os.Stdin); in.Scan(); {
		var u syscall.Rusage
		if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
			return err
		}
		fmt.Println(time.Duration(u.Utime.Nano() + u.Stime.Nano()).Nanoseconds())
	}
	return nil
}

func benchServer(pods int) (*Server, error) {
	profile, err := scorers.NewProfile("latency", nil)
	if err != nil {
		return nil, err
	}
	addrs := make([]string, pods)
	for i := range addrs {
		addrs[i] = fmt.Sprintf("10.0.%d.%d:8000", i/250, i%250+1)
	}
	pool := newPool("m", profile, addrs...)
	for _, p := range pool.Table.Pods() {
		pool.Table.SetStats(p, &podstate.Stats{
			At: time.Now(), Every: time.Hour, Engine: "vllm", Known: podstate.FieldRunning | podstate.FieldWaiting | podstate.FieldKVUsage,
			Running: float64(p.Slot % 7), Waiting: float64(p.Slot % 3), KVUsage: 0.5,
		}, 0)
	}
	router, err := route.New([]*configpb.Pool{{Name: "m", Models: []string{"m"}}}, "m")
	if err != nil {
		return nil, err
	}
	return New(Config{TLS: TLS{Mode: "off"}}, router, []Pool{pool}, prometheus.NewRegistry(), slog.New(slog.DiscardHandler))
}

// process is a server in a process of its own.
type process struct {
	addr string
	cpu  func() time.Duration // used since it began
}

func startBench(b *testing.B, kind string) *process {
	b.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), serverEnv+"="+kind)
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		b.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		b.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		in.Close()
		cmd.Wait()
	})
	lines := bufio.NewReader(out)
	read := func() string {
		line, err := lines.ReadString('\n')
		if err != nil {
			b.Fatal(err)
		}
		return strings.TrimSpace(line)
	}
	return &process{addr: read(), cpu: func() time.Duration {
		fmt.Fprintln(in)
		n, err := strconv.ParseInt(read(), 10, 64)
		if err != nil {
			b.Fatal(err)
		}
		return time.Duration(n)
	}}
}
