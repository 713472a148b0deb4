package config

import (
	"fmt"
	"math"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/warmpath/warmpath/proto/configpb"
)

// Bounds on how often a pod is scraped. A pod's gauges do not change faster
// than 50 ms, and after a minute they describe other requests.
const (
	minInterval = 50 * time.Millisecond
	maxInterval = time.Minute
)

// maxBudget is more cores than the bodies of any gateway's responses take.
const maxBudget = 64

// maxMegabytes is a disk that is larger than any log should be: 16 TB.
const maxMegabytes = 1 << 24

const maxPort = 65535

// bounds returns the limits of an integer field, for what cannot even be read as
// one.
func bounds(fd protoreflect.FieldDescriptor) (least, most int) {
	switch fd.JSONName() {
	case "port", "targetPort":
		return 1, maxPort
	case "maxMegabytes":
		return 1, maxMegabytes
	}
	return math.MinInt32, math.MaxInt32
}

// validator finds what is wrong with the meaning of a configuration.
type validator struct {
	*reader
	known  Known
	dir    string   // of the file; relative paths begin there
	unread Mistakes // what the reader could not make out
}

// mistake reports a mistake, unless it may only follow from one of the reader's:
// a value that could not be read at path or inside it, or, if nothing stands at
// path, a field beside it whose name was not understood.
func (v *validator) mistake(path, format string, args ...any) {
	around := v.standing(path)
	for _, m := range v.unread {
		if inside(m.Path, path) || around != path && inside(path, m.Path) && inside(m.Path, around) {
			return
		}
	}
	v.wrong(v.lineOf(path), path, format, args...)
}

// inside reports whether the field at path is the one at outer, or within it.
func inside(path, outer string) bool {
	rest, ok := strings.CutPrefix(path, outer)
	return ok && (outer == "" || rest == "" || rest[0] == '.' || rest[0] == '[')
}

func (v *validator) config(c *configpb.GatewayConfig) {
	v.server(c.Server)
	v.envoy(c.Envoy)
	if len(c.Pools) == 0 {
		v.mistake("pools", "none given; want at least one pool")
	}
	v.names(c)
	for i, p := range c.Pools {
		v.pool(p, fmt.Sprintf("pools[%d]", i))
	}
}

func (v *validator) server(s *configpb.Server) {
	listeners := []struct{ path, address string }{
		{"server.grpc.address", s.Grpc.Address},
		{"server.health.address", s.Health.Address},
		{"server.admin.address", s.Admin.Address},
	}
	for i, l := range listeners {
		v.address(l.path, l.address, 1)
		for _, other := range listeners[:i] {
			if collide(l.address, other.address) {
				v.mistake(l.path, "%q is already taken by %s (%q); give each its own port", l.address, other.path, other.address)
			}
		}
	}
	tls := s.Grpc.Tls
	v.oneOf("server.grpc.tls.mode", "mode", tls.Mode, []string{"auto", "on", "off"})
	if tls.CertDir != "" {
		const path = "server.grpc.tls.certDir"
		if tls.Mode == "off" {
			v.mistake(path, "%q is not used with mode off; leave one of them out", tls.CertDir)
		}
		for _, name := range []string{"tls.crt", "tls.key"} {
			v.file(path, filepath.Join(resolved(tls.CertDir, v.dir), name), "want a folder with tls.crt and tls.key")
		}
	}
	v.token("server.admin.adminToken", s.Admin.AdminToken)
	if s.DecisionLog != nil {
		v.decisionLog(s.DecisionLog, "server.decisionLog")
	}
}

func (v *validator) decisionLog(l *configpb.DecisionLog, path string) {
	if l.File == "" {
		v.mistake(path+".file", "missing; want the file for the log, or no decisionLog at all")
	} else if dir := filepath.Dir(resolved(l.File, v.dir)); !isDir(dir) {
		v.mistake(path+".file", "%q; want a file in a folder that exists; %s does not", clip(l.File), dir)
	} else if info, err := os.Stat(resolved(l.File, v.dir)); err == nil && !info.Mode().IsRegular() {
		// A device or a pipe cannot become its own predecessor, or should not.
		v.mistake(path+".file", "%q is there and no regular file; want one, or the name of a new one", clip(l.File))
	}
	if !(l.Sample > 0 && l.Sample <= 1) {
		v.mistake(path+".sample", "%v; want a share above 0 and up to 1; to log none, leave decisionLog out", l.Sample)
	}
	if l.MaxMegabytes < 1 || l.MaxMegabytes > maxMegabytes {
		v.mistake(path+".maxMegabytes", "%d; want 1 to %d", l.MaxMegabytes, maxMegabytes)
	}
}

func isDir(name string) bool {
	info, err := os.Stat(name)
	return err == nil && info.IsDir()
}

// token wants what can stand in a header. It stays out of the message.
func (v *validator) token(path, s string) {
	if strings.ContainsFunc(s, func(r rune) bool { return r <= ' ' || r > '~' }) {
		v.mistake(path, "has a character that cannot stand in a header; want visible ASCII without spaces")
	}
}

func (v *validator) envoy(e *configpb.Envoy) {
	for _, a := range []struct{ path, address string }{{"envoy.listen", e.Listen}, {"envoy.admin", e.Admin}} {
		// Port 0 is a free one, which Envoy tells. It resolves no names to listen on.
		if host, port, _ := net.SplitHostPort(a.address); v.address(a.path, a.address, 0) && host != "" {
			if _, err := netip.ParseAddr(host); err != nil {
				v.mistake(a.path, "%q is a host name, on which Envoy cannot listen; want an IP address, as in \"127.0.0.1:%s\"", host, port)
			}
		}
	}
	if collide(e.Listen, e.Admin) {
		v.mistake("envoy.admin", "%q is already taken by envoy.listen (%q); give each its own port", e.Admin, e.Listen)
	}
	v.oneOf("envoy.bodyMode", "mode", e.BodyMode, []string{"BUFFERED", "FULL_DUPLEX_STREAMED"})
}

// names sees to it that a model or adapter leads to one pool.
func (v *validator) names(c *configpb.GatewayConfig) {
	pools := map[string]int{}
	owner := map[string]string{} // model or adapter: the field that names it first
	for i, p := range c.Pools {
		path := fmt.Sprintf("pools[%d]", i)
		switch first, twice := pools[p.Name]; {
		case p.Name == "":
			v.mistake(path+".name", "missing; want a name of its own for each pool")
		case !poolName.MatchString(p.Name):
			v.mistake(path+".name", "%q; want up to 63 letters, digits, '-', '_', '.' and '/', the first and the last a letter or digit", clip(p.Name))
		case twice:
			v.mistake(path+".name", "%q is already the name of pools[%d] in line %d", p.Name, first, v.lineOf(fmt.Sprintf("pools[%d].name", first)))
		default:
			pools[p.Name] = i
		}
		for _, list := range []struct {
			field string
			names []string
		}{{"models", p.Models}, {"adapters", p.Adapters}} {
			for j, name := range list.names {
				at := fmt.Sprintf("%s.%s[%d]", path, list.field, j)
				if name == "" {
					v.mistake(at, "empty; want a name as it stands in requests")
				} else if first, twice := owner[name]; twice {
					v.mistake(at, "%q is already %s in line %d; a name leads to one pool", clip(name), first, v.lineOf(first))
				} else {
					owner[name] = at
				}
			}
		}
		if len(p.Models)+len(p.Adapters) == 0 && p.Name != c.DefaultPool {
			v.mistake(path, "no model leads to pool %q: give it models, or make it the defaultPool", p.Name)
		}
	}
	if all := poolNames(c.Pools); c.DefaultPool != "" && len(all) > 0 && !slices.Contains(all, "") {
		if !slices.Contains(all, c.DefaultPool) {
			v.mistake("defaultPool", "unknown pool %s", choose(c.DefaultPool, all))
		}
	}
}

// A pool's name goes into headers, metric labels and Envoy's metadata.
var poolName = regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9._/-]{0,61}[A-Za-z0-9])?$`)

func poolNames(pools []*configpb.Pool) []string {
	var names []string
	for _, p := range pools {
		names = append(names, p.Name)
	}
	return names
}

func (v *validator) pool(p *configpb.Pool, path string) {
	v.oneOf(path+".engine", "engine", p.Engine, v.known.Engines)
	v.oneOf(path+".profile", "profile", p.Profile, v.known.Profiles)
	v.weights(p.Weights, path+".weights")
	v.discovery(p.Discovery, path+".discovery")
	v.scrape(p.Scrape, path+".scrape")
	v.observe(p.Observe, path+".observe")
}

func (v *validator) scrape(s *configpb.Scrape, path string) {
	v.duration(path+".interval", s.Interval, minInterval, maxInterval)
	if u := s.Path; u != "" && (!strings.HasPrefix(u, "/") || strings.ContainsFunc(u, func(r rune) bool { return r <= ' ' || r > '~' || r == '#' })) {
		v.mistake(path+".path", "%q; want a path that begins with \"/\", as in \"/metrics\"", clip(u))
	}
	if s.Port < 0 || s.Port > maxPort {
		v.mistake(path+".port", "%d; want a number from 1 to %d, or none for the port at which the pod serves", s.Port, maxPort)
	}
	v.token(path+".token", s.Token)
	if s.Tls.GetCaFile() != "" {
		v.file(path+".tls.caFile", resolved(s.Tls.CaFile, v.dir), "want a file with certificates, PEM")
	}
	for name, series := range s.Series {
		if series == "" {
			v.mistake(path+".series."+name, "empty; want a series, as name or name{label=\"value\"}")
		}
	}
}

func (v *validator) observe(o *configpb.Observe, path string) {
	v.oneOf(path+".firstToken", "way", o.FirstToken, []string{"auto", "tap", "sample", "off"})
	v.oneOf(path+".usage", "way", o.Usage, []string{"auto", "trailers", "off"})
	if !(o.CpuBudget > 0 && o.CpuBudget <= maxBudget) {
		v.mistake(path+".cpuBudget", "%v; want cores, above 0 and up to %v; with usage off, and firstToken not sample, none is spent", o.CpuBudget, maxBudget)
	}
}

func (v *validator) weights(weights map[string]float64, path string) {
	sum := 0.0
	for name, w := range weights {
		at := join(path, name)
		if !slices.Contains(v.known.Scorers, name) {
			v.mistake(at, "unknown scorer %s", choose(name, v.known.Scorers))
		}
		if w < 0 {
			v.mistake(at, "%v; want 0 or more: a scorer's best pods cannot be made its worst", w)
		}
		sum += max(w, 0)
	}
	if len(weights) > 0 && sum == 0 {
		v.mistake(path, "weights that cannot choose: want at least one above 0, or none at all to use the profile's")
	}
}

// address reports whether s is host:port with a port of least or more.
func (v *validator) address(path, s string, least uint64) bool {
	const want = "want host:port, as in \":9002\", \"127.0.0.1:9002\" or \"[::1]:9002\""
	host, port, err := net.SplitHostPort(s)
	if err != nil {
		if addr, err := netip.ParseAddr(s); err == nil && addr.Is6() {
			v.mistake(path, "%q has no port, or an IPv6 address without brackets; %s", clip(s), want)
			return false
		}
		v.mistake(path, "%q; %s", clip(s), want)
		return false
	}
	if n, err := strconv.ParseUint(port, 10, 16); err != nil || n < least {
		v.mistake(path, "port %q in %q; want a number from %d to 65535", clip(port), clip(s), least)
		return false
	}
	if host == "" {
		return true
	}
	if _, err := netip.ParseAddr(host); err != nil && !hostName.MatchString(host) {
		v.mistake(path, "host %q; want an IP address or a host name", clip(host))
		return false
	}
	return true
}

// The last label of a host name has a letter; otherwise it is a mistyped IP address.
var hostName = regexp.MustCompile(`^([A-Za-z0-9_]([A-Za-z0-9_-]{0,61}[A-Za-z0-9])?\.)*[A-Za-z0-9-]*[A-Za-z][A-Za-z0-9-]*\.?$`)

// collide reports whether two sockets cannot listen on a and b.
func collide(a, b string) bool {
	hostA, portA, errA := net.SplitHostPort(a)
	hostB, portB, errB := net.SplitHostPort(b)
	if errA != nil || errB != nil || portA != portB || portA == "0" {
		return false
	}
	every := func(host string) bool {
		addr, err := netip.ParseAddr(host)
		return host == "" || err == nil && addr.IsUnspecified()
	}
	return hostA == hostB || every(hostA) || every(hostB)
}

func (v *validator) duration(path, s string, least, most time.Duration) {
	d, err := time.ParseDuration(s)
	if err != nil {
		v.mistake(path, "%q is not a duration; want a number with its unit, as in \"1s\" or \"250ms\"", clip(s))
	} else if d < least || d > most {
		v.mistake(path, "%q; want %s to %s", clip(s), least, most)
	}
}

func (v *validator) oneOf(path, what, got string, allowed []string) {
	if !slices.Contains(allowed, got) {
		v.mistake(path, "unknown %s %s", what, choose(got, allowed))
	}
}

// file wants a file that can be read.
func (v *validator) file(path, name, want string) {
	f, err := os.Open(name)
	if err == nil {
		defer f.Close()
		var info os.FileInfo
		if info, err = f.Stat(); err == nil && info.IsDir() {
			err = fmt.Errorf("open %s: is a folder", name)
		}
	}
	if err != nil {
		v.mistake(path, "%v; %s", err, want)
	}
}

// Interval returns how often the pods of a loaded pool are scraped.
func Interval(p *configpb.Pool) time.Duration {
	d, _ := time.ParseDuration(p.Scrape.Interval) // Load has seen to it
	return d
}
