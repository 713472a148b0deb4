package discovery

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/net/dns/dnsmessage"

	"github.com/warmpath/warmpath/podstate"
)

// Bounds of the time between two questions. The answer's TTL decides within
// them; an answer without one (from /etc/hosts) counts as 30 s.
const (
	minTTL     = time.Second
	defaultTTL = 30 * time.Second
	maxTTL     = 5 * time.Minute
	retryDNS   = 5 * time.Second
)

// DNS is the pods behind a name, such as that of a headless service of
// Kubernetes: all addresses of host:port, or all targets of an SRV name, which
// begins with an underscore.
type DNS struct {
	host string
	port uint16 // 0: an SRV name
	log  *slog.Logger

	resolver *net.Resolver
	ttl      ttlNote
}

var _ Discoverer = (*DNS)(nil)

// NewDNS wants host:port, or an SRV name such as _http._tcp.llama.default.svc.
func NewDNS(name string, log *slog.Logger) (*DNS, error) {
	d := &DNS{host: name, log: log}
	if !strings.HasPrefix(name, "_") {
		host, port, err := net.SplitHostPort(name)
		if err != nil || host == "" {
			return nil, fmt.Errorf("dns name %q is neither host:port nor an SRV name like _http._tcp.llama", name)
		}
		n, err := strconv.ParseUint(port, 10, 16)
		if err != nil || n == 0 {
			return nil, fmt.Errorf("dns name %q: %q is not a port; 1 to 65535", name, port)
		}
		d.host, d.port = host, uint16(n)
	}
	// Go's resolver does not tell the TTL, so it is read from what passes by.
	d.resolver = &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, network, address string) (net.Conn, error) {
		var dialer net.Dialer
		conn, err := dialer.DialContext(ctx, network, address)
		if err != nil {
			return nil, err
		}
		return d.ttl.listen(conn), nil
	}}
	return d, nil
}

// Run implements Discoverer. A question that fails keeps the last answer, also
// when the name is unknown: that is what a cluster's DNS says while it restarts,
// and pods that are really gone fail their requests.
func (d *DNS) Run(ctx context.Context, out chan<- []podstate.Spec) error {
	timer := time.NewTimer(0)
	defer timer.Stop()
	var last []podstate.Spec
	failed := false
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-timer.C:
		}
		d.ttl.reset()
		specs, err := d.lookup(ctx)
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil:
			if !failed {
				d.log.Error("cannot resolve the pods' name; the last answer stays", "name", d.host, "error", err)
			}
			failed = true
			timer.Reset(retryDNS)
			continue
		case last == nil || !slices.EqualFunc(specs, last, func(a, b podstate.Spec) bool { return a.Addr == b.Addr && a.Name == b.Name }):
			d.log.Info("endpoints resolved", "name", d.host, "endpoints", len(specs))
			last = specs
			send(ctx, out, slices.Clone(specs))
		}
		failed = false
		timer.Reset(d.ttl.pause())
	}
}

// lookup returns all pods, or an error if any part of the answer is missing.
func (d *DNS) lookup(ctx context.Context) ([]podstate.Spec, error) {
	if d.port != 0 {
		return d.addresses(ctx, d.host, d.port, "")
	}
	_, targets, err := d.resolver.LookupSRV(ctx, "", "", d.host)
	if err != nil {
		return nil, err
	}
	var all []podstate.Spec
	for _, t := range targets {
		specs, err := d.addresses(ctx, t.Target, t.Port, strings.TrimSuffix(t.Target, "."))
		if err != nil {
			return nil, err
		}
		all = append(all, specs...)
	}
	return d.distinct(all)
}

// addresses resolves a host. A pod without a name is named by its address.
func (d *DNS) addresses(ctx context.Context, host string, port uint16, name string) ([]podstate.Spec, error) {
	ips, err := d.resolver.LookupNetIP(ctx, "ip", host)
	if err != nil {
		return nil, err
	}
	var specs []podstate.Spec
	for _, ip := range ips {
		addr := netip.AddrPortFrom(ip.Unmap(), port)
		spec := podstate.Spec{Name: name, Addr: addr}
		if name == "" {
			spec.Name = addr.String()
		}
		specs = append(specs, spec)
	}
	return d.distinct(specs)
}

func (d *DNS) distinct(specs []podstate.Spec) ([]podstate.Spec, error) {
	if len(specs) == 0 {
		return nil, errors.New("the answer is empty")
	}
	specs = slices.CompactFunc(sorted(specs), func(a, b podstate.Spec) bool { return a.Addr == b.Addr })
	return specs, nil
}

// ttlNote is the shortest TTL among the answers since reset.
type ttlNote struct {
	mu  sync.Mutex
	ttl time.Duration // 0: none seen
}

func (n *ttlNote) reset() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.ttl = 0
}

// pause is how long the answers are good for.
func (n *ttlNote) pause() time.Duration {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.ttl == 0 {
		return defaultTTL
	}
	return min(max(n.ttl, minTTL), maxTTL)
}

// message reads the TTLs of a DNS message. What cannot be read is ignored: the
// resolver judges it.
func (n *ttlNote) message(b []byte) {
	var p dnsmessage.Parser
	if _, err := p.Start(b); err != nil || p.SkipAllQuestions() != nil {
		return
	}
	for {
		h, err := p.AnswerHeader()
		if err != nil {
			return
		}
		n.mu.Lock()
		if ttl := max(time.Duration(h.TTL)*time.Second, 1); n.ttl == 0 || ttl < n.ttl {
			n.ttl = ttl
		}
		n.mu.Unlock()
		if p.SkipAnswer() != nil {
			return
		}
	}
}

// listen returns a connection that notes the TTLs of the messages read from it.
// The resolver knows by net.PacketConn whether messages have a length in front.
func (n *ttlNote) listen(conn net.Conn) net.Conn {
	if udp, ok := conn.(*net.UDPConn); ok {
		return &packetListener{udp, n}
	}
	return &streamListener{conn, n}
}

type packetListener struct {
	*net.UDPConn
	note *ttlNote
}

func (l *packetListener) Read(b []byte) (int, error) {
	n, err := l.UDPConn.Read(b)
	l.note.message(b[:n])
	return n, err
}

type streamListener struct {
	net.Conn
	note *ttlNote
}

func (l *streamListener) Read(b []byte) (int, error) {
	n, err := l.Conn.Read(b)
	l.note.message(b[:n]) // the length, and parts of a long message, are no messages
	return n, err
}
