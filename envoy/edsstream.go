package envoy

import (
	"cmp"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	discoverypb "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	edspb "github.com/envoyproxy/go-control-plane/envoy/service/endpoint/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/anypb"
)

const edsType = "type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment"

// edsStream is one connected Envoy. Its fields belong to EDS.mu.
type edsStream struct {
	node  string
	acked uint64 // newest version that Envoy has taken or refused
}

// StreamEndpoints serves one Envoy.
func (e *EDS) StreamEndpoints(stream edspb.EndpointDiscoveryService_StreamEndpointsServer) error {
	requests := make(chan *discoverypb.DiscoveryRequest)
	ended := make(chan error, 1)
	go func() { // ends when the stream's context does, which is when this method has returned
		for {
			req, err := stream.Recv()
			if err != nil {
				ended <- err
				return
			}
			select {
			case requests <- req:
			case <-stream.Context().Done():
				return
			}
		}
	}()

	var s *edsStream // nil until Envoy has said what it wants
	defer func() { e.leave(s) }()
	var sent uint64
	hold := time.NewTimer(holdTimeout)
	defer hold.Stop()
	for {
		moved, version, resource := e.state()
		if s != nil && version > sent {
			label := e.label(version)
			err := stream.Send(&discoverypb.DiscoveryResponse{
				VersionInfo: label,
				Nonce:       label,
				TypeUrl:     edsType,
				Resources:   []*anypb.Any{resource},
			})
			if err != nil {
				return err
			}
			sent = version
		}
		select {
		case <-moved:
		case <-hold.C:
			if err := e.stopHolding(); err != nil {
				return err
			}
		case req := <-requests:
			if s != nil {
				e.answered(s, req)
				continue
			}
			var err error
			if s, err = e.join(req); err != nil {
				return err
			}
		case err := <-ended:
			if stream.Context().Err() != nil {
				return nil // Envoy has gone; nobody reads the status
			}
			return err
		}
	}
}

// state returns what a stream has to send, and a channel that closes when that changes.
func (e *EDS) state() (moved <-chan struct{}, version uint64, resource *anypb.Any) {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.moved, e.version, e.current
}

// stopHolding publishes what there is, though some pool has not been found.
func (e *EDS) stopHolding() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.version > 0 {
		return nil
	}
	e.log.Warn("eds: publishing endpoints without pools that were not found in time",
		"pools", slices.Sorted(maps.Keys(e.missing)), "after", holdTimeout)
	return e.publishLocked()
}

func (e *EDS) join(req *discoverypb.DiscoveryRequest) (*edsStream, error) {
	if names := req.GetResourceNames(); len(names) > 0 && !slices.Contains(names, cluster) {
		return nil, status.Errorf(codes.InvalidArgument,
			"eds has the cluster %q only, not %q: set eds_cluster_config.service_name to it", cluster, names)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	s := &edsStream{node: cmp.Or(req.GetNode().GetId(), "unnamed")}
	e.streams[s] = true
	return s, nil
}

func (e *EDS) leave(s *edsStream) {
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(e.streams, s)
	e.moveLocked()
}

// answered notes which version Envoy has dealt with. A refused version counts
// too: waiting longer would not make Envoy take it.
func (e *EDS) answered(s *edsStream, req *discoverypb.DiscoveryRequest) {
	number, ok := e.number(req.GetResponseNonce())
	if !ok {
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if number <= s.acked {
		return
	}
	s.acked = number
	e.moveLocked()
	if refusal := req.GetErrorDetail(); refusal != nil {
		e.log.Error("eds: Envoy refused the endpoints and keeps those it has",
			"node", s.node, "version", number, "reason", refusal.GetMessage())
	}
}

// label is the name of a version on the wire, as version_info and as nonce.
func (e *EDS) label(version uint64) string {
	return e.born + "." + strconv.FormatUint(version, 10)
}

// number is the reverse of label. It fails for a nonce that is not ours.
func (e *EDS) number(label string) (version uint64, ok bool) {
	text, ok := strings.CutPrefix(label, e.born+".")
	if !ok {
		return 0, false
	}
	version, err := strconv.ParseUint(text, 10, 64)
	return version, err == nil
}
