package envoy_test

import (
	"context"
	"fmt"
	"io"
	"log/slog"
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

// load has clients send one small request after the other. Each waits for its
// answer no longer than patience.
func (w *ward) load(d time.Duration, clients int, patience time.Duration) (all result) {
	end := time.Now().Add(d)
	var wg sync.WaitGroup
	var mu sync.Mutex
	for range clients {
		wg.Go(func() {
			c := newClient(w.t, false)
			var own result
			for time.Now().Before(end) {
				w.ask(&own, func(ctx context.Context) error {
					body := fmt.Sprintf(`{"model":"model-a","stream":true,"max_tokens":4,"messages":[{"role":"user","content":"%d is my number"}]}`, w.serial.Add(1))
					resp, err := w.post(ctx, c, body)
					if err != nil {
						return err
					}
					defer resp.Body.Close()
					if _, err := io.Copy(io.Discard, resp.Body); err != nil || resp.StatusCode != 200 {
						return fmt.Errorf("status %d, %v", resp.StatusCode, err)
					}
					return nil
				}, patience)
				time.Sleep(10 * time.Millisecond)
			}
			mu.Lock()
			defer mu.Unlock()
			all.good += own.good
			all.failed += own.failed
			all.late += own.late
		})
	}
	wg.Wait()
	return all
}

func (w *ward) ask(r *result, do func(context.Context) error, patience time.Duration) {
	ctx, cancel := context.WithTimeout(w.t.Context(), patience)
	defer cancel()
	switch err := do(ctx); {
	case err == nil:
		r.good++
	case ctx.Err() != nil:
		r.late++
	default:
		r.failed++
	}
}

const patient = 30 * time.Second

func (r result) String() string {
	return fmt.Sprintf("%d good, %d failed, %d without an answer", r.good, r.failed, r.late)
}

func (w *ward) wantAllGood(when string, got result) {
	w.t.Helper()
	if got.failed+got.late > 0 || got.good < 20 {
		w.t.Errorf("%s: %v", when, got)
	}
}

// served is which part of a load's answers came from a pod.
func (w *ward) served(i int, load func()) float64 {
	before := make([]int, len(w.pods))
	for k, p := range w.pods {
		before[k] = p.FirstTokens()
	}
	load()
	all := 0
	for k, p := range w.pods {
		all += p.FirstTokens() - before[k]
	}
	return float64(w.pods[i].FirstTokens()-before[i]) / float64(max(1, all))
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
	share := w.served(2, func() { w.wantAllGood("with the new pod", w.load(3*time.Second, 4, patient)) })
	if share == 0 || share > 0.3 {
		t.Errorf("the new pod serves %.0f %% in its first seconds, want some and less than a third", 100*share)
	}
	if c := w.see(2); c.Charge.Requests < 0 || c.Charge.Held < 0 {
		t.Errorf("late news of the old pod: %+v", c.Charge)
	}
}

func TestPodHangs(t *testing.T) {
	w := newWard(t, 3)
	w.load(time.Second, 4, patient)
	w.pods[0].SetFault(simpod.FaultHang)
	got := w.load(10*time.Second, 6, 2*time.Second)
	if got.failed > 0 || got.late > 20 || got.good < 100 {
		t.Errorf("one of three pods hangs for 10 s: %v; want 20 without an answer at most", got)
	}
	t.Logf("one of three pods hangs for 10 s: %v", got)
	if got := w.load(2*time.Second, 6, time.Second); got.late > 2 {
		t.Errorf("later: %v; want one trial at a time", got)
	}
	w.pods[0].SetFault(simpod.FaultNone)
	w.await("the pod to be used again", func() bool {
		return w.served(0, func() { w.load(500*time.Millisecond, 4, patient) }) > 0
	})
}

func TestPodSleeps(t *testing.T) {
	w := newWard(t, 3)
	w.pods[0].SetFault(simpod.FaultSleep)
	w.await("the gateway to know", func() bool { return w.see(0).Stats.Asleep })
	w.wantAllGood("a pod sleeps", w.load(2*time.Second, 4, patient))
	w.pods[0].SetFault(simpod.FaultNone)
	w.await("the gateway to know", func() bool { return !w.see(0).Stats.Asleep })
	if share := w.served(0, func() { w.wantAllGood("it is awake", w.load(time.Second, 4, patient)) }); share < 0.1 {
		t.Errorf("the pod that woke up serves %.0f %%", 100*share)
	}
}

func TestPodDrains(t *testing.T) {
	w := newWard(t, 3)
	w.load(time.Second, 4, patient)
	w.pods[0].SetFault(simpod.FaultDrain)
	got := w.load(4*time.Second, 4, patient)
	// Three in a row, as many under way with the third, and trials after 1 and 3 s.
	if got.failed < 1 || got.failed > 9 || got.late > 0 || got.good < 100 {
		t.Errorf("a pod answers 500 at once: %v; want 9 failures at most", got)
	}
	t.Logf("a pod answers 500 at once for 4 s: %v", got)
}

func TestPodIsBusy(t *testing.T) {
	w := newWard(t, 3)
	w.pods[0].SetFault(simpod.FaultBusy)
	w.wantAllGood("a pod answers 503: the next one gets the request", w.load(2*time.Second, 4, patient))
	if share := w.served(0, func() { w.load(time.Second, 4, patient) }); share > 0 {
		t.Errorf("it served %.0f %%", 100*share)
	}
	if c := w.see(0); c.Health == (podstate.Health{Ramp: 1}) {
		t.Error("nothing is known of its failures")
	}
}

func TestPodLies(t *testing.T) {
	w := newWard(t, 3)
	w.load(time.Second, 6, patient)
	w.pods[0].SetFault(simpod.FaultLie)
	doubted := false
	share := w.served(0, func() {
		for range 4 {
			w.wantAllGood("a pod says that it is idle", w.load(time.Second, 12, patient))
			doubted = doubted || w.see(0).Trust == 0
		}
	})
	if share > 0.45 {
		t.Errorf("the liar serves %.0f %%, want about a third", 100*share)
	}
	if !doubted {
		t.Error("its metrics were never doubted")
	}
	w.pods[0].SetFault(simpod.FaultNone)
	w.load(500*time.Millisecond, 6, patient)
	w.await("trust to return", func() bool { return w.see(0).Trust == 1 })
}
