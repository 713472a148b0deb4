package envoy_test

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"math"
	"net/http"
	"net/netip"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/warmpath/warmpath/examples/simpod"
	"github.com/warmpath/warmpath/podstate"
	"github.com/warmpath/warmpath/podstate/scrape"
	"github.com/warmpath/warmpath/scorers"
	"github.com/warmpath/warmpath/scorers/sim/engine"
)

// ward is a pool of simulated model servers that fall ill, behind a real Envoy,
// with a gateway that scrapes them ten times a second and chooses by cost.
type ward struct {
	*rig
	t       *testing.T
	pods    []*simpod.Server
	scraper *scrape.Scraper
	serial  atomic.Int64
}

func newWard(t *testing.T, n int) *ward {
	t.Helper()
	w := &ward{t: t}
	var members []*pod
	for range n {
		members = append(members, w.start("127.0.0.1:0"))
	}
	w.rig = newRig(t, settings{pools: map[string][]*pod{"a": members}})
	profile, err := scorers.NewProfile("latency", nil)
	if err != nil {
		t.Fatal(err)
	}
	w.orders["a"].otherwise = profile
	metrics, err := scrape.NewMetrics(prometheus.NewRegistry())
	if err != nil {
		t.Fatal(err)
	}
	w.scraper, err = scrape.New(scrape.Config{Pool: "a", Interval: 100 * time.Millisecond}, w.tables["a"], metrics, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		w.scraper.Run(ctx)
	}()
	t.Cleanup(func() { stop(); <-done })
	w.scraper.Set(w.tables["a"].Pods())
	w.await("all pods to be known", func() bool {
		return podstate.RungOf(w.tables["a"].Snapshot(time.Now())) == podstate.RungFresh && w.see(0).Trust == 1
	})
	return w
}

// start opens a model server and makes it the last of the pods.
func (w *ward) start(addr string) *pod {
	w.t.Helper()
	kind, err := engine.Preset("h100-8b")
	if err != nil {
		w.t.Fatal(err)
	}
	lis, err := listen(addr) // which may have been taken since it was free
	if err != nil {
		w.t.Fatal(err)
	}
	lis.Close()
	p, err := simpod.Start(simpod.Config{Addr: addr, Model: "model-a", Engine: kind})
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(p.Close)
	w.pods = append(w.pods, p)
	return &pod{name: p.Addr, addr: netip.MustParseAddrPort(p.Addr)}
}

func (w *ward) await(what string, ok func() bool) {
	w.t.Helper()
	waitFor(w.t, what, ok)
}

// see is what the gateway knows of a pod.
func (w *ward) see(i int) podstate.Candidate {
	w.t.Helper()
	for _, c := range w.tables["a"].Snapshot(time.Now()) {
		if c.Pod.Addr == w.pods[i].Addr {
			return c
		}
	}
	w.t.Fatalf("pod %d is no member", i)
	return podstate.Candidate{}
}

// result counts the answers of a load.
type result struct {
	good, failed, late int // 200 and complete; anything else; none before the client gave up
}

// few is how many good answers a load has at least, however busy this machine is.
const few = 20

// load has clients send one small request after the other for this long, and on
// until it has a few good answers. Each waits for its answer no longer than
// patience.
func (w *ward) load(d time.Duration, clients int, patience time.Duration) result {
	end := time.Now().Add(d)
	return w.loadUntil(clients, patience, func(r result) bool { return r.good >= few && time.Now().After(end) })
}

// loadUntil is load until enough says so, which is asked before each request.
func (w *ward) loadUntil(clients int, patience time.Duration, enough func(result) bool) (all result) {
	last := time.Now().Add(time.Minute)
	var wg sync.WaitGroup
	var mu sync.Mutex
	over := false
	done := func() bool {
		mu.Lock()
		defer mu.Unlock()
		if over = over || enough(all); !over && time.Now().After(last) {
			w.t.Errorf("a minute of load was not enough: %v", all)
			over = true
		}
		return over
	}
	for range clients {
		wg.Go(func() {
			c := newClient(w.t, false)
			for !done() {
				r := w.ask(c, patience)
				mu.Lock()
				all.good += r.good
				all.failed += r.failed
				all.late += r.late
				mu.Unlock()
				time.Sleep(10 * time.Millisecond)
			}
		})
	}
	wg.Wait()
	return all
}

// ask sends one request.
func (w *ward) ask(c *http.Client, patience time.Duration) result {
	ctx, cancel := context.WithTimeout(w.t.Context(), patience)
	defer cancel()
	body := fmt.Sprintf(`{"model":"model-a","stream":true,"max_tokens":4,"messages":[{"role":"user","content":"%d is my number"}]}`, w.serial.Add(1))
	resp, err := w.post(ctx, c, body)
	if err == nil {
		defer resp.Body.Close()
		_, err = io.Copy(io.Discard, resp.Body)
	}
	switch {
	case err == nil && resp.StatusCode == http.StatusOK:
		return result{good: 1}
	case ctx.Err() != nil:
		return result{late: 1}
	}
	return result{failed: 1}
}

const patient = patience

func (r result) String() string {
	return fmt.Sprintf("%d good, %d failed, %d without an answer", r.good, r.failed, r.late)
}

func (w *ward) wantAllGood(when string, got result) {
	w.t.Helper()
	if got.failed+got.late > 0 {
		w.t.Errorf("%s: %v", when, got)
	}
}

// share returns a function that tells which part of the answers since then came
// from a pod.
func (w *ward) share(i int) func() float64 {
	begun := make([]int, len(w.pods))
	for k, p := range w.pods {
		begun[k] = p.FirstTokens()
	}
	return func() float64 {
		all := 0
		for k, p := range w.pods {
			all += p.FirstTokens() - begun[k]
		}
		return float64(w.pods[i].FirstTokens()-begun[i]) / float64(max(1, all))
	}
}

func TestPodIsKilled(t *testing.T) {
	w := newWard(t, 3)
	w.wantAllGood("before", w.load(time.Second, 4, patient))
	w.pods[0].Close()
	w.wantAllGood("a pod is gone, which the gateway does not know", w.load(2*time.Second, 4, patient))
	w.await("the gateway to find that its port is closed", func() bool { return w.see(0).Health.Out == podstate.OutDown })
}

// A new process at the old address is another pod: the old one's failures and
// charges are not its own, and it begins slowly.
func TestPodReturnsUnderItsAddress(t *testing.T) {
	w := newWard(t, 3)
	w.load(time.Second, 4, patient)
	ctx, cancel := context.WithTimeout(t.Context(), patient)
	defer cancel()
	w.orders["a"].pods = []*pod{{addr: netip.MustParseAddrPort(w.pods[0].Addr)}}
	resp, err := w.post(ctx, newClient(t, false), `{"model":"model-a","stream":true,"max_tokens":20000,"messages":[{"role":"user","content":"Tell me everything"}]}`)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	w.orders["a"].pods = nil

	old := w.pods[0]
	old.Close()
	w.load(time.Second, 4, patient)
	w.pods = w.pods[1:]
	w.start(old.Addr)
	table := w.tables["a"]
	var specs []podstate.Spec
	for _, p := range table.Pods() {
		s := p.Spec
		if p.Addr == old.Addr {
			s.UID = "another"
		}
		specs = append(specs, s)
	}
	table.SetPods(specs)
	w.scraper.Set(table.Pods())
	if c := w.see(2); c.Charge.Requests != 0 || c.Health.Out != "" {
		t.Errorf("the new pod begins with %d requests, out %q", c.Charge.Requests, c.Health.Out)
	}
	if _, err := io.Copy(io.Discard, resp.Body); err == nil {
		t.Error("the old pod's response ended well, though it was killed")
	}
	w.await("the new pod to be known", func() bool { return w.see(2).Trust == 1 })
	const clients = 8 // the other two pods have half of them each, at most
	end := time.Now().Add(3 * time.Second)
	w.wantAllGood("with the new pod", w.loadUntil(clients, patient, func(result) bool {
		c := w.see(2)
		if most := max(1, math.Ceil(c.Health.Ramp*clients/2)); float64(c.Charge.Requests) > most {
			t.Errorf("the new pod has %d requests at a time, want %v at most as long as its ramp is %.2f", c.Charge.Requests, most, c.Health.Ramp)
		}
		return w.pods[2].FirstTokens() > 0 && time.Now().After(end)
	}))
	if c := w.see(2); c.Charge.Requests < 0 || c.Charge.Held < 0 {
		t.Errorf("late news of the old pod: %+v", c.Charge)
	}
}

func TestPodHangs(t *testing.T) {
	w := newWard(t, 3)
	w.load(time.Second, 4, patient)
	w.pods[0].SetFault(simpod.FaultHang)
	begun := time.Now()
	// The clients are more patient than it takes to find out, so that those who
	// give up are those that it had. The more it has, the less it is chosen.
	const clients = 6
	got := w.loadUntil(clients, 10*time.Second, func(r result) bool { return r.good >= few && w.see(0).Health.Out != "" })
	if got.failed > 0 || got.late >= clients {
		t.Errorf("one of three pods hangs, and until it is found: %v", got)
	}
	t.Logf("found after %v: %v", time.Since(begun).Round(time.Millisecond), got)

	w.await("the clients to be gone", func() bool { return w.see(0).Charge.Requests == 0 })
	tried := false
	end := time.Now().Add(3 * time.Second)
	got = w.loadUntil(clients, 2*time.Second, func(r result) bool {
		n := w.see(0).Charge.Requests
		if n > 1 {
			t.Errorf("the pod that hangs has %d requests; want one trial at a time", n)
		}
		tried = tried || n == 1
		return tried && r.good >= few && time.Now().After(end)
	})
	t.Logf("later: %v", got)

	w.pods[0].SetFault(simpod.FaultNone)
	share := w.share(0)
	w.loadUntil(4, patient, func(result) bool { return share() > 0 })
}

func TestPodSleeps(t *testing.T) {
	w := newWard(t, 3)
	w.pods[0].SetFault(simpod.FaultSleep)
	w.await("the gateway to know", func() bool { return w.see(0).Stats.Asleep })
	w.wantAllGood("a pod sleeps", w.load(2*time.Second, 4, patient))
	w.pods[0].SetFault(simpod.FaultNone)
	w.await("the gateway to know", func() bool { return !w.see(0).Stats.Asleep })
	share := w.share(0)
	w.wantAllGood("it is awake", w.loadUntil(4, patient, func(r result) bool { return r.good >= few && share() > 0.1 }))
}

func TestPodDrains(t *testing.T) {
	w := newWard(t, 3)
	w.load(time.Second, 4, patient)
	w.pods[0].SetFault(simpod.FaultDrain)
	begun := time.Now()
	got := w.loadUntil(4, patient, func(r result) bool { return r.failed > 0 && r.good >= few && time.Since(begun) > 4*time.Second })
	took := time.Since(begun)
	most := 6                                                               // three in a row, and as many under way with the third
	for trial := time.Second; trial < took; trial = 2*trial + time.Second { // after 1, 3, 7 s …
		most++
	}
	if got.failed > most || got.late > 0 {
		t.Errorf("a pod answers 500 at once: %v; want %d failures at most", got, most)
	}
	t.Logf("a pod answers 500 at once for %v: %v", took.Round(time.Millisecond), got)
}

func TestPodIsBusy(t *testing.T) {
	w := newWard(t, 3)
	w.pods[0].SetFault(simpod.FaultBusy)
	share := w.share(0)
	out := false
	end := time.Now().Add(3 * time.Second)
	w.wantAllGood("a pod answers 503: the next one gets the request", w.loadUntil(4, patient, func(r result) bool {
		out = out || w.see(0).Health.Out != "" // not always: its next trial may be due
		return out && r.good >= few && time.Now().After(end)
	}))
	if part := share(); part > 0 {
		t.Errorf("it served %.0f %%", 100*part)
	}
}

func TestPodLies(t *testing.T) {
	w := newWard(t, 3)
	w.load(time.Second, 6, patient)
	w.pods[0].SetFault(simpod.FaultLie)
	share := w.share(0)
	doubted := false
	end := time.Now().Add(4 * time.Second)
	w.wantAllGood("a pod says that it is idle", w.loadUntil(12, patient, func(r result) bool {
		doubted = doubted || w.see(0).Trust == 0
		return doubted && r.good >= 10*few && time.Now().After(end)
	}))
	if part := share(); part > 0.45 {
		t.Errorf("the liar serves %.0f %%, want about a third", 100*part)
	}
	w.pods[0].SetFault(simpod.FaultNone)
	w.loadUntil(6, patient, func(result) bool { return w.see(0).Trust == 1 })
}
