package admin

import (
	"bytes"
	"context"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	dto "github.com/prometheus/client_model/go"

	"github.com/warmpath/warmpath/podstate"
	"github.com/warmpath/warmpath/scorers"
	"github.com/warmpath/warmpath/scorers/replay"
)

// last is a policy that takes the last pod, the one before as its second, and
// turns the pods around, as policies may.
type last struct{}

func (last) Choose(req *scorers.Request, cands []podstate.Candidate) (first, second int) {
	if len(cands) == 0 {
		req.Refusal = scorers.RefusalNoPod
		return -1, -1
	}
	slices.Reverse(cands)
	return 0, min(1, len(cands)-1)
}

func newRecorder(tb testing.TB, cfg LogConfig, pools int) *Recorder {
	tb.Helper()
	r, err := NewRecorder(cfg, pools, prometheus.NewRegistry(), slog.New(slog.DiscardHandler))
	if err != nil {
		tb.Fatal(err)
	}
	return r
}

func candidates(n int) []podstate.Candidate {
	cands := make([]podstate.Candidate, n)
	for i := range cands {
		addr := netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, byte(i >> 8), byte(i)}), 8000)
		cands[i] = podstate.Candidate{Pod: &podstate.Pod{Spec: podstate.Spec{Addr: addr}, Addr: addr.String(), Slot: i},
			Stats: &podstate.Stats{Known: podstate.FieldAdapters, Adapters: []string{"acme"}}, Cached: i}
	}
	return cands
}

// run lets the recorder write its log and returns what must be called before it
// is read.
func (r *Recorder) run(tb testing.TB) (end func()) {
	tb.Helper()
	if err := r.Open(); err != nil {
		tb.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error)
	go func() { done <- r.Run(ctx) }()
	return func() {
		tb.Helper()
		cancel()
		if err := <-done; err != nil {
			tb.Error(err)
		}
	}
}

func count(c prometheus.Counter) float64 {
	var m dto.Metric
	if err := c.Write(&m); err != nil {
		panic(err)
	}
	return m.GetCounter().GetValue()
}

// logged returns the decisions in a file.
func logged(tb testing.TB, name string) (list []*replay.Decision) {
	tb.Helper()
	f, err := os.Open(name)
	if err != nil {
		tb.Fatal(err)
	}
	defer f.Close()
	for d, err := range replay.Read(f) {
		if err != nil {
			tb.Fatal(err)
		}
		list = append(list, d)
	}
	return list
}

func TestARecordedDecisionIsWhatThePolicySaw(t *testing.T) {
	r := newRecorder(t, LogConfig{}, 1)
	p := r.Watch("a", "latency", nil, last{})
	cands := candidates(3)
	first, second := p.Choose(&scorers.Request{Seed: 7, Tokens: 5}, cands)
	if first != 0 || second != 1 || cands[0].Pod.Slot != 2 {
		t.Fatalf("got %d, %d; a policy that is watched chooses as before", first, second)
	}
	p.Choose(&scorers.Request{Seed: 8}, nil)

	d := r.find("0000000000000007")
	if d == nil || d.First.Slot != 2 || d.Second.Slot != 1 || d.Request.Tokens != 5 || len(d.Candidates) != 3 {
		t.Fatalf("got %+v", d)
	}
	for i, c := range d.Candidates {
		if c.Pod.Slot != i {
			t.Errorf("candidate %d is pod %d: they are in the order after the choice", i, c.Pod.Slot)
		}
	}
	if d := r.find("8"); d == nil || d.First != nil || d.Second != nil || d.Request.Refusal != scorers.RefusalNoPod {
		t.Errorf("a refusal: got %+v", d)
	}
	for _, id := range []string{"9", "x", ""} {
		if d := r.find(id); d != nil {
			t.Errorf("id %q found %+v", id, d)
		}
	}
}

func TestTheNewestDecisionsAreKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRecorder(t, LogConfig{}, 2)
		w := r.Watch("a", "latency", nil, last{}).(*recording)
		const n = 100
		for i := range 500 {
			time.Sleep(time.Second)
			w.Choose(&scorers.Request{Seed: uint64(i)}, candidates(n))
		}
		want := keptCandidates / 2 / (n + overhead)
		if len(w.kept) != want || w.size != want*(n+overhead) {
			t.Errorf("%d decisions are kept, counted as %d; want %d and %d", len(w.kept), w.size, want, want*(n+overhead))
		}
		for i, e := range w.kept {
			if int(e.Request.Seed) != 500-want+i {
				t.Fatalf("decision %d is at %d", e.Request.Seed, i)
			}
		}
		// One that is too large for all is kept alone.
		time.Sleep(time.Minute)
		w.Choose(&scorers.Request{Seed: 5000, Tokens: 1}, candidates(keptCandidates/2-overhead))
		if len(w.kept) != 1 {
			t.Errorf("%d decisions are kept", len(w.kept))
		}
	})
}

func TestKeepingIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRecorder(t, LogConfig{}, 1)
		w := r.Watch("a", "latency", nil, last{}).(*recording)
		cands := candidates(1000)
		for range 2000 { // a second of them
			time.Sleep(500 * time.Microsecond)
			w.Choose(&scorers.Request{}, cands)
		}
		want := (keptCandidates + keepRate) / (1000 + overhead)
		if n := int(w.last); n < want-1 || n > want+1 {
			t.Errorf("%d decisions were kept in a second, want %d", n, want)
		}
	})
}

func TestAllDecisionsAreLogged(t *testing.T) {
	file := filepath.Join(t.TempDir(), "decisions.jsonl")
	r := newRecorder(t, LogConfig{File: file, Sample: 1, MaxBytes: 1 << 30}, 2)
	a, b := r.Watch("a", "latency", nil, last{}), r.Watch("b", "hyperpod", map[string]float64{"queue": 1}, last{})
	end := r.run(t)
	for i := range uint64(500) {
		a.Choose(&scorers.Request{Seed: i << 20, Key: 77, Adapter: "acme"}, candidates(4))
		b.Choose(&scorers.Request{Seed: i << 40, Key: 78}, candidates(2))
	}
	end()
	n := map[string]int{}
	prompts := map[uint64]bool{}
	for _, d := range logged(t, file) {
		n[d.Pool]++
		prompts[d.Prompt] = true
		if d.First == nil || d.First.Slot != len(d.Candidates)-1 {
			t.Fatalf("first is %v of %d", d.First, len(d.Candidates))
		}
	}
	if n["a"] != 500 || n["b"] != 500 || count(r.logged) != 1000 || count(r.dropped) != 0 {
		t.Errorf("logged %v, counted %v and %v dropped", n, count(r.logged), count(r.dropped))
	}
	if len(prompts) != 2 || prompts[77] || prompts[78] {
		t.Errorf("prompts %v; want two that are hidden", prompts)
	}
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if bytes.Contains(text, []byte("acme")) {
		t.Error("the name of an adapter is in the log")
	}
	if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v; want a file for its owner only", info, err)
	}
}

// Replicas choose alike only by what is the same in each, whether it logs or not.
func TestThePolicySeesTheSameKeyInEveryReplica(t *testing.T) {
	const hash = 0xfedcba9876543210
	for _, file := range []string{"", filepath.Join(t.TempDir(), "a.jsonl"), filepath.Join(t.TempDir(), "b.jsonl")} {
		r := newRecorder(t, LogConfig{File: file, Sample: 1, MaxBytes: 1 << 20}, 1)
		p := r.Watch("a", "latency", nil, last{})
		req := &scorers.Request{Key: hash}
		p.Choose(req, candidates(1))
		if d := r.find("last"); req.Key != hash&keyMask || d == nil || d.Request.Key != req.Key {
			t.Errorf("with file %q: the policy saw key %x, kept is %+v", file, req.Key, d)
		}
		req = &scorers.Request{Seed: hash, Key: hash}
		p.Choose(req, candidates(1))
		if d := r.find("last"); req.Key != hash || d.Prompt != 0 {
			t.Errorf("with file %q: the key of a request without a prompt, which is its seed, became %x, and its prompt %x", file, req.Key, d.Prompt)
		}
	}
}

// Lines tell which prompts begin alike, and not how.
func TestPromptsAreHidden(t *testing.T) {
	const hash, other = 0xfedcba9876543210, 0xfedcba9876543210 + keyMask + 1 // equal to policies
	lines := func(r *Recorder, hash uint64) (lines []*replay.Decision) {
		for seed := range uint64(2) {
			r.Watch("a", "latency", nil, last{}).Choose(&scorers.Request{Seed: seed, Key: hash}, candidates(1))
			text := r.line(nil, r.find("last"), nil)
			d, err := replay.Parse(text)
			if err != nil {
				t.Fatal(err)
			}
			if bytes.Contains(text, []byte("fedcba98")) || d.Request.Key != hash&keyMask {
				t.Errorf("the hash is in the line, or the key is not: %s", text)
			}
			lines = append(lines, d)
		}
		return lines
	}
	r := newRecorder(t, LogConfig{}, 4)
	a, b, c := lines(r, hash), lines(r, other), lines(newRecorder(t, LogConfig{}, 1), hash)
	if a[0].Prompt == 0 || a[0].Prompt != a[1].Prompt || a[0].Prompt == b[0].Prompt || a[0].Prompt == c[0].Prompt {
		t.Errorf("prompts are %x, another's %x, those of another process %x", a[0].Prompt, b[0].Prompt, c[0].Prompt)
	}
}

func TestASampleIsLogged(t *testing.T) {
	file := filepath.Join(t.TempDir(), "decisions.jsonl")
	r := newRecorder(t, LogConfig{File: file, Sample: 0.25, MaxBytes: 1 << 30}, 1)
	p := r.Watch("a", "latency", nil, last{})
	end := r.run(t)
	for i := range uint64(1000) {
		p.Choose(&scorers.Request{Seed: i * 0x9e3779b97f4a7c15}, candidates(1))
	}
	end()
	if n := len(logged(t, file)); n < 240 || n > 260 {
		t.Errorf("%d of 1,000 are logged; want a quarter", n)
	}
}

func TestALogThatIsTooSlowLosesDecisionsAndSaysSo(t *testing.T) {
	file := filepath.Join(t.TempDir(), "decisions.jsonl")
	r := newRecorder(t, LogConfig{File: file, Sample: 1, MaxBytes: 1 << 30}, 64) // one of many pools keeps little
	w := r.Watch("a", "latency", nil, last{}).(*recording)
	cands := candidates(100)
	for i := range uint64(100) { // nobody writes meanwhile
		w.Choose(&scorers.Request{Seed: i}, cands)
	}
	kept := len(w.kept)
	r.run(t)()
	if n := len(logged(t, file)); n != kept || count(r.logged) != float64(kept) || count(r.dropped) != float64(100-kept) {
		t.Errorf("%d decisions of 100 were kept, %d logged; counted %v and %v dropped", kept, n, count(r.logged), count(r.dropped))
	}
}

func TestALogThatFailsIsTriedAgain(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "logs")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, "decisions.jsonl")
	r := newRecorder(t, LogConfig{File: file, Sample: 1, MaxBytes: 1 << 10}, 1)
	p := r.Watch("a", "latency", nil, last{})
	if err := r.file.open(); err != nil {
		t.Fatal(err)
	}
	decide := func() error {
		for range 3 { // more than half of the bound
			p.Choose(&scorers.Request{}, candidates(1))
			if err := r.write(); err != nil {
				return err
			}
		}
		return nil
	}
	if err := decide(); err != nil {
		t.Fatal(err)
	}
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	if err := decide(); err == nil {
		t.Error("the folder is gone and nobody says so")
	}
	if count(r.dropped) == 0 {
		t.Error("what could not be written is not counted")
	}
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := decide(); err != nil {
		t.Error(err)
	}
	if len(logged(t, file)) == 0 {
		t.Error("nothing is logged after the folder came back")
	}
}

func TestALogThatCannotBe(t *testing.T) {
	file := filepath.Join(t.TempDir(), "nowhere", "decisions.jsonl")
	_, err := NewRecorder(LogConfig{File: file, Sample: 1, MaxBytes: 1 << 20}, 1, prometheus.NewRegistry(), slog.New(slog.DiscardHandler))
	if err == nil || !strings.Contains(err.Error(), "nowhere") {
		t.Errorf("got %v", err)
	}
	r := newRecorder(t, LogConfig{File: t.TempDir(), Sample: 1, MaxBytes: 1 << 20}, 1)
	if err := r.Open(); err == nil || !strings.Contains(err.Error(), "server.decisionLog: ") {
		t.Errorf("a folder: got %v", err)
	}
}

func TestChooseDoesNotAllocate(t *testing.T) {
	for _, file := range []string{"", filepath.Join(t.TempDir(), "decisions.jsonl")} {
		r := newRecorder(t, LogConfig{File: file, Sample: 1, MaxBytes: 1 << 20}, 1)
		p := r.Watch("a", "latency", nil, last{})
		cands, req := candidates(16), new(scorers.Request)
		for range keptCandidates / 16 {
			p.Choose(req, cands)
		}
		if n := testing.AllocsPerRun(1000, func() { p.Choose(req, cands) }); n != 0 {
			t.Errorf("file %q: %v allocations", file, n)
		}
	}
}

func TestMetricsOfTheREADME(t *testing.T) {
	reg := prometheus.NewRegistry()
	if _, err := NewRecorder(LogConfig{}, 1, reg, slog.New(slog.DiscardHandler)); err != nil {
		t.Fatal(err)
	}
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	problems, err := promlint.NewWithMetricFamilies(families).Lint()
	if err != nil || len(problems) > 0 {
		t.Errorf("promlint: %v, %v", problems, err)
	}
	var have []string
	for _, f := range families {
		have = append(have, f.GetName())
	}
	readme, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	documented := regexp.MustCompile(`warmpath_admin_[a-z_]+`).FindAllString(string(readme), -1)
	slices.Sort(documented)
	if !slices.Equal(have, documented) {
		t.Errorf("metrics are %q, README.md has %q", have, documented)
	}
}
