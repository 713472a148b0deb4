package envoy

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"sync"
	"time"

	corepb "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointpb "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	edspb "github.com/envoyproxy/go-control-plane/envoy/service/endpoint/v3"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/structpb"
)

const (
	// cluster is the one cluster of the bootstrap, with the pods of all pools.
	cluster = "pods"

	// ackTimeout bounds the wait for Envoys to take new endpoints. They need a few
	// milliseconds; one that hangs must not keep new pods from the others.
	ackTimeout = 500 * time.Millisecond

	// holdTimeout bounds how long a new EDS waits for pools that nobody has set.
	// Envoy waits as long for its first endpoints.
	holdTimeout = 5 * time.Second
)

// EDS tells Envoys the pods of all pools, as one cluster. An endpoint carries
// the names of its pools as metadata, so that Envoy stays in the pool when it
// has to choose by itself.
//
// It serves state of the world on a stream of its own, without ADS: there is one
// resource and it is always sent whole, which leaves no room for the orderings
// that an xDS cache is for.
type EDS struct {
	edspb.UnimplementedEndpointDiscoveryServiceServer
	log  *slog.Logger
	born string // makes the versions of two runs of warmpath differ

	mu      sync.Mutex // guards all below
	pools   map[string][]netip.AddrPort
	missing map[string]bool // pools not set yet; nothing is published before all are, or holdTimeout
	version uint64          // of assignment; 0 is none yet
	current *anypb.Any
	streams map[*edsStream]bool
	moved   chan struct{} // closed and replaced whenever version, a stream's acked or streams changes
}

// NewEDS returns an EDS that publishes nothing until each of the named pools has
// been Set once: an Envoy that outlives a restart of warmpath must not lose the
// pods of a pool because another pool was found first.
func NewEDS(pools []string, log *slog.Logger) *EDS {
	e := &EDS{
		log:     log,
		born:    strconv.FormatInt(time.Now().UnixNano(), 36),
		pools:   make(map[string][]netip.AddrPort),
		missing: make(map[string]bool),
		streams: make(map[*edsStream]bool),
		moved:   make(chan struct{}),
	}
	for _, p := range pools {
		e.missing[p] = true
	}
	return e
}

// Register adds EDS to a gRPC server.
func (e *EDS) Register(s grpc.ServiceRegistrar) { edspb.RegisterEndpointDiscoveryServiceServer(s, e) }

// Set replaces the endpoints of a pool and waits until every connected Envoy has
// them, for 500 ms at most; then the pods may be picked. Before it returns, a
// pick of a new pod would reach another pod of the pool. With no Envoy connected
// it returns at once. An error means that some Envoy is late, not that it will
// not get the endpoints.
func (e *EDS) Set(ctx context.Context, pool string, endpoints []netip.AddrPort) error {
	ctx, cancel := context.WithTimeout(ctx, ackTimeout)
	defer cancel()

	e.mu.Lock()
	defer e.mu.Unlock()
	old, known := e.pools[pool]
	e.pools[pool] = slices.Clone(endpoints)
	delete(e.missing, pool)
	switch {
	case len(e.missing) > 0 && e.version == 0:
		// Held back. Envoys that wait for the first version count as late.
	case known && e.version > 0 && slices.Equal(old, endpoints):
		// Nothing new; wait for who is still late.
	default:
		if err := e.publishLocked(); err != nil {
			return fmt.Errorf("eds: %w", err)
		}
	}
	want := max(1, e.version)
	for {
		late := e.lateLocked(want)
		if late == 0 {
			return nil
		}
		moved := e.moved
		e.mu.Unlock()
		select {
		case <-moved:
			e.mu.Lock()
		case <-ctx.Done():
			e.mu.Lock()
			return fmt.Errorf("eds: pool %q: %d of %d Envoys have not taken its %d endpoints yet: %w",
				pool, late, len(e.streams), len(endpoints), ctx.Err())
		}
	}
}

func (e *EDS) lateLocked(version uint64) (n int) {
	for s := range e.streams {
		if s.acked < version {
			n++
		}
	}
	return n
}

func (e *EDS) moveLocked() {
	close(e.moved)
	e.moved = make(chan struct{})
}

// publishLocked makes a new version of what the pools hold.
func (e *EDS) publishLocked() error {
	a, err := anypb.New(e.assignmentLocked())
	if err != nil {
		return err
	}
	e.current = a
	e.version++
	e.moveLocked()
	return nil
}

// assignmentLocked merges the pools. Envoy takes an address once per cluster, so
// an endpoint of several pools is one endpoint with a list of names.
func (e *EDS) assignmentLocked() *endpointpb.ClusterLoadAssignment {
	names := make(map[netip.AddrPort][]string)
	for _, pool := range slices.Sorted(maps.Keys(e.pools)) {
		for _, addr := range e.pools[pool] {
			if !slices.Contains(names[addr], pool) {
				names[addr] = append(names[addr], pool)
			}
		}
	}
	locality := &endpointpb.LocalityLbEndpoints{}
	for _, addr := range slices.SortedFunc(maps.Keys(names), netip.AddrPort.Compare) {
		locality.LbEndpoints = append(locality.LbEndpoints, lbEndpoint(addr, names[addr]))
	}
	return &endpointpb.ClusterLoadAssignment{
		ClusterName: cluster,
		Endpoints:   []*endpointpb.LocalityLbEndpoints{locality},
	}
}

func lbEndpoint(addr netip.AddrPort, pools []string) *endpointpb.LbEndpoint {
	values := make([]*structpb.Value, len(pools))
	for i, p := range pools {
		values[i] = structpb.NewStringValue(p)
	}
	return &endpointpb.LbEndpoint{
		HostIdentifier: &endpointpb.LbEndpoint_Endpoint{Endpoint: &endpointpb.Endpoint{
			Address: &corepb.Address{Address: &corepb.Address_SocketAddress{SocketAddress: &corepb.SocketAddress{
				Address:       addr.Addr().String(),
				PortSpecifier: &corepb.SocketAddress_PortValue{PortValue: uint32(addr.Port())},
			}}},
		}},
		Metadata: &corepb.Metadata{FilterMetadata: map[string]*structpb.Struct{
			"envoy.lb": {Fields: map[string]*structpb.Value{
				"pool": structpb.NewListValue(&structpb.ListValue{Values: values}),
			}},
		}},
	}
}
