package discovery

import (
	"context"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/net/dns/dnsmessage"
)

// nameServer is a DNS server on loopback. Its answers can be changed.
type nameServer struct {
	mu    sync.Mutex
	hosts map[string][]string // to IP addresses
	srv   map[string][]string // to target hosts, at port 9000
	ttl   uint32
	code  dnsmessage.RCode // of all answers, unless success
	asked int
}

func (s *nameServer) answer(query []byte) []byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	var p dnsmessage.Parser
	h, err := p.Start(query)
	if err != nil {
		return nil
	}
	q, err := p.Question()
	if err != nil {
		return nil
	}
	s.asked++
	name := strings.TrimSuffix(q.Name.String(), ".")
	_, isHost := s.hosts[name]
	_, isSRV := s.srv[name]
	code := s.code
	if code == dnsmessage.RCodeSuccess && !isHost && !isSRV {
		code = dnsmessage.RCodeNameError
	}
	b := dnsmessage.NewBuilder(nil, dnsmessage.Header{ID: h.ID, Response: true, Authoritative: true, RCode: code})
	_ = b.StartQuestions()
	_ = b.Question(q)
	_ = b.StartAnswers()
	if code == dnsmessage.RCodeSuccess {
		rh := dnsmessage.ResourceHeader{Name: q.Name, Class: q.Class, TTL: s.ttl}
		for _, text := range s.hosts[name] {
			ip := netip.MustParseAddr(text)
			switch {
			case ip.Is4() && q.Type == dnsmessage.TypeA:
				_ = b.AResource(rh, dnsmessage.AResource{A: ip.As4()})
			case ip.Is6() && q.Type == dnsmessage.TypeAAAA:
				_ = b.AAAAResource(rh, dnsmessage.AAAAResource{AAAA: ip.As16()})
			}
		}
		for _, target := range s.srv[name] {
			if q.Type == dnsmessage.TypeSRV {
				_ = b.SRVResource(rh, dnsmessage.SRVResource{Port: 9000, Target: dnsmessage.MustNewName(target + ".")})
			}
		}
	}
	msg, _ := b.Finish()
	return msg
}

func (s *nameServer) change(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f()
}

// start serves over UDP until the test ends, and makes d ask this server.
func (s *nameServer) start(t *testing.T, d *DNS) {
	t.Helper()
	conn, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	go func() {
		buf := make([]byte, 1500)
		for {
			n, from, err := conn.ReadFrom(buf)
			if err != nil {
				return
			}
			if msg := s.answer(buf[:n]); msg != nil {
				_, _ = conn.WriteTo(msg, from)
			}
		}
	}()
	dial := d.resolver.Dial
	d.resolver.Dial = func(ctx context.Context, _, _ string) (net.Conn, error) {
		return dial(ctx, "udp", conn.LocalAddr().String())
	}
}

func newDNS(t *testing.T, name string) (*DNS, *lockedBuffer) {
	t.Helper()
	log, logs := newLog()
	d, err := NewDNS(name, log)
	if err != nil {
		t.Fatal(err)
	}
	return d, logs
}

func TestDNSLookup(t *testing.T) {
	s := &nameServer{
		ttl: 7,
		hosts: map[string][]string{
			"llama.test": {"10.0.0.2", "10.0.0.1", "fd00::1"},
			"a.test":     {"10.0.0.1"}, "b.test": {"10.0.0.2"}, "none.test": {},
		},
		srv: map[string][]string{"_http._tcp.llama.test": {"b.test", "a.test"}, "_http._tcp.torn.test": {"a.test", "gone.test"}},
	}
	tests := []struct {
		name, ask string
		want      []string // name and address
		err       bool
	}{
		{"all addresses of a host", "llama.test.:8000", []string{"10.0.0.1:8000 10.0.0.1:8000", "10.0.0.2:8000 10.0.0.2:8000", "[fd00::1]:8000 [fd00::1]:8000"}, false},
		{"all targets of an SRV name", "_http._tcp.llama.test.", []string{"a.test 10.0.0.1:9000", "b.test 10.0.0.2:9000"}, false},
		{"an unknown name is a failure", "missing.test.:80", nil, true},
		{"a name without addresses is a failure", "none.test.:80", nil, true},
		{"a target that is missing spoils the answer", "_http._tcp.torn.test.", nil, true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			d, _ := newDNS(t, tt.ask)
			s.start(t, d)
			specs, err := d.lookup(t.Context())
			var got []string
			for _, p := range specs {
				got = append(got, p.Name+" "+p.Addr.String())
			}
			if !slices.Equal(got, tt.want) || (err != nil) != tt.err {
				t.Errorf("got %q, %v; want %q", got, err, tt.want)
			}
			if !tt.err && d.ttl.pause() != 7*time.Second {
				t.Errorf("asked again after %v; the TTL is 7 s", d.ttl.pause())
			}
		})
	}
}

func TestDNSFollowsTheAnswer(t *testing.T) {
	s := &nameServer{ttl: 0, hosts: map[string][]string{"llama.test": {"10.0.0.1"}}} // asked again after minTTL
	d, logs := newDNS(t, "llama.test.:80")
	s.start(t, d)
	r := run(t, d, logs)
	r.wants("10.0.0.1:80")
	s.change(func() { s.hosts["llama.test"] = []string{"10.0.0.2", "10.0.0.1"} })
	r.wants("10.0.0.1:80", "10.0.0.2:80")
}

func TestDNSKeepsTheLastAnswer(t *testing.T) {
	s := &nameServer{hosts: map[string][]string{"llama.test": {"10.0.0.1"}}}
	d, logs := newDNS(t, "llama.test.:80")
	s.start(t, d)
	r := run(t, d, logs)
	r.wants("10.0.0.1:80")
	s.change(func() { s.hosts = nil })
	r.logged("cannot resolve", 1)
	select {
	case specs := <-r.out:
		t.Errorf("a failure sent %v", addresses(specs))
	default:
	}
}

func TestTTLBounds(t *testing.T) {
	tests := []struct {
		name string
		ttl  uint32
		want time.Duration
	}{
		{"0 is a second", 0, time.Second},
		{"30 s", 30, 30 * time.Second},
		{"a day is five minutes", 86400, 5 * time.Minute},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := &nameServer{ttl: tt.ttl, hosts: map[string][]string{"a": {"10.0.0.1"}}}
			q := dnsmessage.Message{Questions: []dnsmessage.Question{{Name: dnsmessage.MustNewName("a."), Type: dnsmessage.TypeA, Class: dnsmessage.ClassINET}}}
			query, err := q.Pack()
			if err != nil {
				t.Fatal(err)
			}
			var n ttlNote
			n.message(s.answer(query))
			if got := n.pause(); got != tt.want {
				t.Errorf("pause %v, want %v", got, tt.want)
			}
		})
	}
	var none ttlNote
	none.message([]byte("no message"))
	if none.pause() != defaultTTL {
		t.Errorf("without a TTL: %v, want %v", none.pause(), defaultTTL)
	}
}

func TestNewDNSRejects(t *testing.T) {
	for _, name := range []string{"", "llama", "llama:", "llama:0", "llama:http", ":80", "llama:99999"} {
		if _, err := NewDNS(name, nil); err == nil || !strings.Contains(err.Error(), "dns name") {
			t.Errorf("%q: %v", name, err)
		}
	}
}
