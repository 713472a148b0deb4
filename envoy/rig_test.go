package envoy_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/warmpath/warmpath/envoy"
	"github.com/warmpath/warmpath/extproc"
	"github.com/warmpath/warmpath/extproc/route"
	"github.com/warmpath/warmpath/podstate"
	"github.com/warmpath/warmpath/podstate/prefix"
	"github.com/warmpath/warmpath/proto/configpb"
	"github.com/warmpath/warmpath/scorers"
)

// modes are the two ways in which bodies reach warmpath.
var modes = []string{"BUFFERED", "FULL_DUPLEX_STREAMED"}

func eachMode(t *testing.T, f func(t *testing.T, mode string)) {
	for _, m := range modes {
		t.Run(m, func(t *testing.T) { f(t, m) })
	}
}

// drainDelay is enough for an Envoy that stalls to hear that a replica will end.
const drainDelay = 5 * time.Second

// gateway is warmpath in this process: the server that Envoy asks, over tables
// and an EDS that the test fills. The model "model-<pool>" is that of a pool, and
// the first pool is the default.
type gateway struct {
	addr   string
	tables map[string]*podstate.Table
	eds    *envoy.EDS
	orders map[string]*order
	reg    *prometheus.Registry
	stop   context.CancelFunc // begins the graceful end
	ended  chan error
}

// startGateway serves at addr, which may have port 0.
func startGateway(t testing.TB, addr string, pools map[string][]*pod, observe extproc.Observe) *gateway {
	t.Helper()
	lis, err := listen(addr)
	if err != nil {
		t.Fatal(err)
	}
	g, err := newGateway(lis, slices.Sorted(maps.Keys(pools)), observe)
	if err != nil {
		t.Fatal(err)
	}
	// An Envoy that has connected already is late until all pools are set.
	for name, pods := range pools {
		g.eds.Set(t.Context(), name, addrs(pods))
	}
	for name, pods := range pools {
		g.mustSetPods(t, name, pods...)
	}
	return g
}

// listen waits for a port that somebody else has taken since it was free: tests of
// other packages run at the same time.
func listen(addr string) (lis net.Listener, err error) {
	within(func() bool {
		lis, err = net.Listen("tcp", addr)
		return !errors.Is(err, syscall.EADDRINUSE)
	})
	return lis, err
}

func newGateway(lis net.Listener, names []string, observe extproc.Observe) (*gateway, error) {
	g := &gateway{
		addr:   lis.Addr().String(),
		tables: map[string]*podstate.Table{},
		orders: map[string]*order{},
		reg:    prometheus.NewRegistry(),
		ended:  make(chan error, 1),
	}
	var cfgs []*configpb.Pool
	var pools []extproc.Pool
	for _, name := range names {
		profile, err := scorers.NewProfile("hyperpod", nil)
		if err != nil {
			return nil, err
		}
		g.tables[name] = podstate.NewTable()
		g.orders[name] = &order{otherwise: profile}
		cfgs = append(cfgs, &configpb.Pool{Name: name, Models: []string{"model-" + name}})
		pools = append(pools, extproc.Pool{
			Name: name, Table: g.tables[name], Index: prefix.NewIndex(1 << 20), Policy: g.orders[name], Observe: observe,
		})
	}
	router, err := route.New(cfgs, names[0])
	if err != nil {
		return nil, err
	}
	log := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))
	server, err := extproc.New(extproc.Config{DrainDelay: drainDelay}, router, pools, g.reg, log)
	if err != nil {
		return nil, err
	}
	g.eds = envoy.NewEDS(names, log)
	g.eds.Register(server.Registrar())

	var ctx context.Context
	ctx, g.stop = context.WithCancel(context.Background())
	go func() { g.ended <- server.Serve(ctx, lis, nil) }()
	return g, nil
}

// setPods makes the addresses the pods of a pool, as main does: Envoy hears of
// them before they can be picked.
func (g *gateway) setPods(ctx context.Context, pool string, addrs ...netip.AddrPort) error {
	if err := g.eds.Set(ctx, pool, addrs); err != nil {
		return err
	}
	g.tables[pool].SetPods(specs(addrs...))
	return nil
}

func specs(addrs ...netip.AddrPort) []podstate.Spec {
	specs := make([]podstate.Spec, len(addrs))
	for i, a := range addrs {
		specs[i] = podstate.Spec{Name: a.String(), Addr: a}
	}
	return specs
}

func (g *gateway) mustSetPods(t testing.TB, pool string, pods ...*pod) {
	t.Helper()
	waitFor(t, "Envoy to take the pods of "+pool, func() bool { return g.setPods(t.Context(), pool, addrs(pods)...) == nil })
}

func addrs(pods []*pod) (list []netip.AddrPort) {
	for _, p := range pods {
		list = append(list, p.addr)
	}
	return list
}

// inflight is how many requests hold a reservation.
func (g *gateway) inflight() (n int) {
	for _, table := range g.tables {
		for _, c := range table.Snapshot(time.Now()) {
			n += c.Charge.Requests
		}
	}
	return n
}

// outAt is which pods of pool a were out at a time, by address. An ejection ends
// after a second, so now is too late to ask.
func (g *gateway) outAt(at time.Time) map[string]string {
	table := g.tables["a"]
	for _, p := range table.Pods() {
		table.ScrapeAnswered(p, at) // changes nothing, but is looked into anew
	}
	out := map[string]string{}
	for _, c := range table.Snapshot(at) {
		out[c.Pod.Addr] = c.Health.Out
	}
	return out
}

// order is a policy that a test can dictate.
type order struct {
	pods      []*pod // the first two are picked; none: otherwise decides
	otherwise extproc.Policy
	seed      atomic.Uint64 // of the last request
}

func (o *order) Choose(req *scorers.Request, cands []podstate.Candidate) (first, second int) {
	o.seed.Store(req.Seed)
	if len(o.pods) == 0 {
		return o.otherwise.Choose(req, cands)
	}
	at := []int{-1, -1}
	for i, p := range o.pods[:min(2, len(o.pods))] {
		for j, c := range cands {
			if c.Pod.Spec.Addr == p.addr {
				at[i] = j
			}
		}
	}
	return at[0], at[1]
}

// rig is a real Envoy with a gateway behind it.
type rig struct {
	*gateway
	envoy *envoy.Process
	url   string
}

// settings are what tests vary. Zero values mean BUFFERED and fail-open.
type settings struct {
	mode       string
	failClosed bool
	observe    extproc.Observe
	pools      map[string][]*pod // the default one is a
	pickers    []string          // of gateways that the test made itself; empty: the rig makes one
}

// newRig starts what is needed, and afterwards checks that no request was left
// behind: at the pods' counters, and at Envoy's.
func newRig(t testing.TB, s settings) *rig {
	t.Helper()
	r := &rig{}
	if s.pickers == nil {
		r.gateway = startGateway(t, "127.0.0.1:0", s.pools, s.observe)
		t.Cleanup(r.gateway.stop)
		s.pickers = []string{r.addr}
	}
	failOpen := !s.failClosed
	bootstrap, err := envoy.Bootstrap(&configpb.GatewayConfig{
		Pools: []*configpb.Pool{{Name: "a", Observe: &configpb.Observe{FirstToken: s.observe.FirstToken, Usage: s.observe.Usage}}},
		Envoy: &configpb.Envoy{Listen: "127.0.0.1:0", Admin: "127.0.0.1:0", BodyMode: s.mode, FailOpen: &failOpen},
	}, envoy.Target{Version: envoy.VersionAtHand(t), Pickers: s.pickers})
	if err != nil {
		t.Fatal(err)
	}
	r.envoy = startEnvoy(t, bootstrap)
	r.url = "http://" + r.envoy.Listen
	r.awaitPods(t)
	t.Cleanup(func() { r.checkIdle(t) })
	return r
}

// awaitPods waits until Envoy has heard of its pods. It may serve before that: it
// waits for 5 s only.
func (r *rig) awaitPods(t testing.TB) {
	t.Helper()
	waitFor(t, "Envoy to hear of its pods", func() bool { return r.stat(t, "cluster.pods.update_success") > 0 })
}

// unhurried makes a generated bootstrap that of a machine that may stall for
// seconds. A replica that answers its health check late is not left out, and a tap
// may show late what has passed.
func unhurried(t testing.TB, bootstrap []byte) []byte {
	t.Helper()
	text := string(bootstrap)
	for timer, of := range map[string]string{"    - timeout: 1s": "health_checks:", "deferred_close_timeout: 1s": "warmpath.tap"} {
		if strings.Contains(text, of) && !strings.Contains(text, timer) {
			t.Fatalf("the bootstrap has no %q", timer)
		}
		text = strings.Replace(text, timer, strings.Replace(timer, "1s", "20s", 1), 1)
	}
	return []byte(text)
}

// startEnvoy runs an Envoy whose log is kept if the test fails.
func startEnvoy(t testing.TB, bootstrap []byte) *envoy.Process {
	t.Helper()
	log, err := os.CreateTemp("", "envoy-*.log")
	if err != nil {
		t.Fatal(err)
	}
	log.Close()
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("Envoy's log: %s", log.Name())
		} else {
			os.Remove(log.Name())
		}
	})
	p, err := envoy.Start(context.Background(), envoy.Options{Bootstrap: unhurried(t, bootstrap), LogPath: log.Name(), Workers: 2})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Stop)
	return p
}

// checkIdle waits for the ends of streams to arrive everywhere.
func (r *rig) checkIdle(t testing.TB) {
	t.Helper()
	var left string
	if !within(func() bool { left = r.left(t); return left == "" }) {
		t.Error("after the test:", left)
	}
}

// left is what has not ended.
func (r *rig) left(t testing.TB) (what string) {
	t.Helper()
	if r.gateway != nil {
		if n := r.inflight(); n != 0 {
			what = fmt.Sprintf("%d requests hold a reservation", n)
		}
	}
	if n := r.stat(t, "cluster.pods.upstream_rq_active"); n != 0 {
		what += fmt.Sprintf(" Envoy has %d requests to pods", n)
	}
	if n := r.stat(t, "cluster.warmpath.upstream_rq_active"); n > 1 { // one is EDS
		what += fmt.Sprintf(" Envoy has %d streams to warmpath", n)
	}
	return what
}

// stat reads one of Envoy's gauges or counters.
func (r *rig) stat(t testing.TB, name string) (value int) {
	t.Helper()
	text, err := r.envoy.Get(context.Background(), "/stats?filter=^"+strings.ReplaceAll(name, ".", `\.`)+"$")
	if err != nil {
		t.Error(err)
		return 0
	}
	if text == "" { // not yet used
		return 0
	}
	if _, err := fmt.Sscanf(text, name+": %d", &value); err != nil {
		t.Errorf("stat %s: %q", name, text)
	}
	return value
}
