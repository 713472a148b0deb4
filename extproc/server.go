package extproc

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"net"
	"time"

	pb "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/status"

	"github.com/warmpath/warmpath/extproc/route"
)

// Config is what an operator may want otherwise. Zero values mean the default.
type Config struct {
	TLS TLS

	// EPP speaks the picker protocol of the Gateway API Inference Extension to
	// the letter: the pick is in the metadata namespace envoy.lb too, names one
	// pod, and clears the route cache. Without it the metadata are those of
	// warmpath's own bootstrap.
	EPP bool

	// TrustSubsetHeader obeys x-gateway-destination-endpoint-subset when it comes
	// as a header, which clients can send. As metadata it is always obeyed.
	TrustSubsetHeader bool

	// FallbackRequest and FallbackResponse are the modes in which bodies are
	// expected from an Envoy that does not say it (before 1.34).
	FallbackRequest, FallbackResponse bodyMode

	MaxBody         int           // longest request body, bytes; default 32 MiB, as in the bootstrap
	DecisionTimeout time.Duration // from a request's start to its decision; default 2 minutes, as Envoy's request_timeout
	DrainDelay      time.Duration // from NOT_SERVING to the end of service; default 3 s: Envoys check once a second
	DrainTimeout    time.Duration // for undecided requests after that; default 25 s
}

const (
	defaultMaxBody         = 32 << 20
	defaultDecisionTimeout = 2 * time.Minute
	// The three together stay below the 30 s after which Kubernetes kills.
	defaultDrainDelay   = 3 * time.Second
	defaultDrainTimeout = 25 * time.Second
	cutTime             = time.Second // for the last answers to reach Envoy
)

// Names by which health is asked: of a whole server, of Kubernetes probes, of
// Envoy's health check, and of the charts of the Inference Extension.
const liveness = "liveness"

var healthNames = []string{"", liveness, "readiness", pb.ExternalProcessor_ServiceDesc.ServiceName, "inference-extension"}

// Server serves ext_proc. Make it with New.
type Server struct {
	pb.UnimplementedExternalProcessorServer

	cfg       Config
	fallback  protocol
	router    *route.Router
	pools     []Pool
	metrics   *metrics
	observers []*observer // by pool
	taps      taps
	log       *slog.Logger
	buffers   mem.BufferPool

	grpc   *grpc.Server
	health *health.Server
	drain  chan struct{} // closed: streams that are not needed end
	cut    chan struct{} // closed: all streams end
}

// New returns a server that decides with the router and the pools. The pools'
// indexes are the router's.
func New(cfg Config, router *route.Router, pools []Pool, reg prometheus.Registerer, log *slog.Logger) (*Server, error) {
	cfg.MaxBody = cmp.Or(cfg.MaxBody, defaultMaxBody)
	cfg.DecisionTimeout = cmp.Or(cfg.DecisionTimeout, defaultDecisionTimeout)
	cfg.DrainDelay = cmp.Or(cfg.DrainDelay, defaultDrainDelay)
	cfg.DrainTimeout = cmp.Or(cfg.DrainTimeout, defaultDrainTimeout)

	s := &Server{
		cfg: cfg, router: router, pools: pools, log: log,
		fallback: protocol{request: cfg.FallbackRequest, response: cfg.FallbackResponse},
		buffers:  new(bufferPool),
		health:   health.NewServer(),
		drain:    make(chan struct{}),
		cut:      make(chan struct{}),
	}
	var err error
	for _, p := range pools {
		s.observers = append(s.observers, newObserver(p.Observe, cfg.EPP))
	}
	if s.metrics, err = newMetrics(reg, pools, s.observers); err != nil {
		return nil, fmt.Errorf("extproc: %w", err)
	}
	creds, err := cfg.TLS.credentials(log)
	if err != nil {
		return nil, fmt.Errorf("extproc: %w", err)
	}
	s.grpc = grpc.NewServer(s.options(creds)...)
	pb.RegisterExternalProcessorServer(s.grpc, s)
	healthpb.RegisterHealthServer(s.grpc, s.health)
	s.setHealth(healthpb.HealthCheckResponse_NOT_SERVING)
	return s, nil
}

// options of the gRPC server. One connection of Envoy carries up to 1,000
// streams, each as long as a response.
func (s *Server) options(creds credentials.TransportCredentials) []grpc.ServerOption {
	return []grpc.ServerOption{
		grpc.Creds(creds),
		grpc.ForceServerCodecV2(newCodec(s.buffers)),
		// In BUFFERED mode a body is one message; with it come headers and metadata.
		grpc.MaxRecvMsgSize(max(2*s.cfg.MaxBody, 64<<20)),
		grpc.MaxSendMsgSize(64 << 20),
		// A body should not have to wait for window updates on its way in.
		grpc.InitialWindowSize(1 << 20),
		grpc.InitialConnWindowSize(16 << 20),
		grpc.ReadBufferSize(64 << 10),
		grpc.WriteBufferSize(64 << 10),
		// Envoy pings every 30 s in the usual configurations; a server that finds
		// that too often closes the connection.
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: 5 * time.Second, PermitWithoutStream: true}),
		grpc.KeepaliveParams(keepalive.ServerParameters{Time: 30 * time.Second, Timeout: 10 * time.Second}),
		grpc.ChainStreamInterceptor(s.endOnDrain),
	}
}

// BytesPerToken is how much text a token of the pool's prompts stands for, as its
// responses tell; 4 before any has.
func (s *Server) BytesPerToken(pool int) float64 { return s.observers[pool].truth.now().text }

// Registrar takes further services for the gRPC port, before Serve.
func (s *Server) Registrar() grpc.ServiceRegistrar { return s.grpc }

// Serve answers on lis, and health checks alone on healthLis, which may be nil,
// until ctx ends. Then it tells Envoy by its health, keeps serving for the drain
// delay, finishes undecided requests, lets the others go on without it, and
// returns. It closes the listeners.
func (s *Server) Serve(ctx context.Context, lis, healthLis net.Listener) error {
	failed := make(chan error, 2)
	go func() { failed <- s.grpc.Serve(lis) }()
	if healthLis != nil {
		hs := grpc.NewServer() // probes speak plaintext
		healthpb.RegisterHealthServer(hs, s.health)
		go func() { failed <- hs.Serve(healthLis) }()
		defer hs.Stop()
	}
	s.setHealth(healthpb.HealthCheckResponse_SERVING)

	select {
	case err := <-failed:
		s.grpc.Stop()
		return fmt.Errorf("extproc: %w", err)
	case <-ctx.Done():
	}
	s.shutdown()
	return nil
}

func (s *Server) shutdown() {
	s.setHealth(healthpb.HealthCheckResponse_NOT_SERVING)
	time.Sleep(s.cfg.DrainDelay)

	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		s.grpc.GracefulStop()
	}()
	close(s.drain)
	within := func(d time.Duration) bool {
		select {
		case <-stopped:
			return true
		case <-time.After(d):
			return false
		}
	}
	if within(s.cfg.DrainTimeout) {
		return
	}
	close(s.cut)
	if !within(cutTime) {
		s.grpc.Stop()
		<-stopped
	}
}

func (s *Server) draining() bool {
	select {
	case <-s.drain:
		return true
	default:
		return false
	}
}

// endOnDrain ends the streams of other services, which would go on for ever,
// when the server drains.
func (s *Server) endOnDrain(srv any, ss grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
	if _, ok := srv.(*Server); ok {
		return handler(srv, ss)
	}
	done := make(chan error, 1)
	go func() { done <- handler(srv, ss) }()
	select {
	case err := <-done:
		return err
	case <-s.drain:
		return status.Error(codes.Unavailable, "shutting down")
	}
}

// setHealth sets all names but liveness, which says that the process is sound:
// one that drains must not be restarted.
func (s *Server) setHealth(status healthpb.HealthCheckResponse_ServingStatus) {
	for _, name := range healthNames {
		if name == liveness {
			s.health.SetServingStatus(name, healthpb.HealthCheckResponse_SERVING)
		} else {
			s.health.SetServingStatus(name, status)
		}
	}
}
