package admin

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/warmpath/warmpath/podstate"
	"github.com/warmpath/warmpath/scorers"
	"github.com/warmpath/warmpath/scorers/replay"
)

const (
	// keptCandidates bounds what is kept of the newest decisions of all pools, in
	// candidates: some 10 MB, and at 16 pods the last 3,000 decisions.
	keptCandidates = 1 << 16
	// keepRate bounds the time that keeping may take, in candidates a second: about
	// a hundredth of a core. At 16 pods it is never reached, at 1,000 pods it keeps
	// a thousand decisions a second.
	keepRate = 1 << 20
	// overhead is what a decision takes besides its candidates, in candidates.
	overhead = 3
	// keyMask leaves of a prompt's hash what policies may see. All replicas choose
	// by the same hash, so each choice tells something of it, and a log must hold
	// what choices are made from. With ten bits one prompt in a thousand has the
	// same: enough to spread prompts, too little to confirm a guess.
	keyMask = 1<<10 - 1
)

// Recorder keeps the newest decisions of each pool, and writes them to a log if
// there is one.
type Recorder struct {
	cfg    LogConfig
	pools  []*recording
	share  int // of keptCandidates and keepRate: pools
	secret secret
	file   *rotating // nil: no log
	wake   chan struct{}
	log    *slog.Logger

	logged, dropped prometheus.Counter
}

// LogConfig is the log of decisions.
type LogConfig struct {
	File     string  // empty: no log
	Sample   float64 // share of the decisions, above 0 to 1
	MaxBytes int64   // of File and its predecessor File.1 together
}

// Policy chooses a pod. Its Choose has the rules of extproc.Policy.
type Policy interface {
	Choose(req *scorers.Request, cands []podstate.Candidate) (first, second int)
}

// NewRecorder returns a recorder for so many pools.
func NewRecorder(cfg LogConfig, pools int, reg prometheus.Registerer, log *slog.Logger) (*Recorder, error) {
	r := &Recorder{
		cfg: cfg, share: max(1, pools), secret: newSecret(), wake: make(chan struct{}, 1), log: log,
		logged: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "warmpath_admin_decisions_logged_total",
			Help: "Decisions that were written to the log.",
		}),
		dropped: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "warmpath_admin_decisions_dropped_total",
			Help: "Decisions that should have been written to the log, which was too slow or failed.",
		}),
	}
	for _, c := range []prometheus.Collector{r.logged, r.dropped} {
		if err := reg.Register(c); err != nil {
			return nil, fmt.Errorf("admin: %w", err)
		}
	}
	if cfg.File == "" {
		return r, nil
	}
	var err error
	r.file, err = newRotating(cfg.File, cfg.MaxBytes)
	return r, err
}

// Watch returns a policy that chooses as p does and whose decisions are kept.
// It is called before Run, once for each pool.
func (r *Recorder) Watch(pool, profile string, weights map[string]float64, p Policy) Policy {
	w := &recording{recorder: r, policy: p, pool: pool, profile: profile, weights: weights, credit: keptCandidates, seen: time.Now()}
	r.pools = append(r.pools, w)
	return w
}

// recording is the decisions of one pool.
type recording struct {
	recorder *Recorder
	policy   Policy
	pool     string
	profile  string
	weights  map[string]float64

	mu      sync.Mutex // nests inside the lock of the pool's table; guards the fields below
	kept    []*entry   // the oldest first, numbered without gaps
	size    int        // of kept, in candidates
	written uint64     // all up to this number are in the log, or are not for it
	last    uint64     // number of the newest
	credit  float64    // candidates that may be kept now
	seen    time.Time  // when credit was that
}

// entry is a decision that is kept.
type entry struct {
	replay.Decision
	number uint64
	log    bool // it is for the log
}

// Choose runs with the table locked, like all policies.
func (w *recording) Choose(req *scorers.Request, cands []podstate.Candidate) (first, second int) {
	r := w.recorder
	hash := uint64(0)
	if req.Key != req.Seed { // else there is no prompt
		hash = req.Key
		req.Key &= keyMask
	}
	logged := r.file != nil && float64(req.Seed>>11)/(1<<53) < r.cfg.Sample
	e := w.take(len(cands), time.Now(), logged)
	if e == nil {
		return w.policy.Choose(req, cands)
	}
	e.Candidates = append(e.Candidates[:0], cands...) // they are the table's
	first, second = w.policy.Choose(req, cands)
	if first < 0 {
		req.Rung = podstate.RungOf(cands) // nothing was chosen that could stand on one
	}
	e.Request, e.Prompt, e.First, e.Second = *req, hash, nil, nil
	if first >= 0 {
		e.First = cands[first].Pod
	}
	if second >= 0 {
		e.Second = cands[second].Pod
	}
	w.put(e)
	if logged {
		select {
		case r.wake <- struct{}{}:
		default:
		}
	}
	return first, second
}

// take returns memory for a decision among n candidates, or nil if it is not to
// be kept.
func (w *recording) take(n int, now time.Time, logged bool) *entry {
	w.mu.Lock()
	defer w.mu.Unlock()
	share := float64(w.recorder.share)
	w.credit = min(keptCandidates/share, w.credit+now.Sub(w.seen).Seconds()*keepRate/share)
	w.seen = now
	if !logged && w.credit < float64(n+overhead) {
		return nil
	}
	w.credit = max(0, w.credit-float64(n+overhead))
	var e *entry
	for len(w.kept) > 0 && w.size+n+overhead > keptCandidates/w.recorder.share {
		e = w.kept[0]
		w.kept[0], w.kept = nil, w.kept[1:]
		w.size -= len(e.Candidates) + overhead
		if e.log && e.number > w.written {
			w.recorder.dropped.Inc()
		}
	}
	if e == nil {
		e = &entry{Decision: replay.Decision{Pool: w.pool, Profile: w.profile, Weights: w.weights}}
	}
	e.Time, e.log = now.UTC(), logged // as it is read by people
	return e
}

func (w *recording) put(e *entry) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.last++
	e.number = w.last
	w.kept = append(w.kept, e)
	w.size += len(e.Candidates) + overhead
}

// next copies the oldest decision that is to be logged to d, and reports whether
// there is one.
func (w *recording) next(d *replay.Decision) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.kept) == 0 {
		return false
	}
	i := 0
	if oldest := w.kept[0].number; w.written >= oldest {
		i = int(w.written - oldest + 1)
	}
	for ; i < len(w.kept); i++ {
		e := w.kept[i]
		w.written = e.number
		if e.log {
			e.copyTo(d)
			return true
		}
	}
	return false
}

// copyTo copies the decision into the memory of d: its own is used again.
func (e *entry) copyTo(d *replay.Decision) {
	cands := append(d.Candidates[:0], e.Candidates...)
	*d = e.Decision
	d.Candidates = cands
}

// Open opens the log, if there is one. It is called once, before Run.
func (r *Recorder) Open() error {
	if r.file == nil {
		return nil
	}
	if err := r.file.open(); err != nil {
		return fmt.Errorf("server.decisionLog: %w", err)
	}
	return nil
}

// Run writes the log until ctx ends, and returns when all is written that was
// decided by then.
func (r *Recorder) Run(ctx context.Context) error {
	if r.file == nil {
		return nil
	}
	warned := time.Time{}
	for ended := false; !ended; {
		select {
		case <-r.wake:
		case <-ctx.Done():
			ended = true
		}
		if err := r.write(); err != nil && time.Since(warned) > time.Minute {
			r.log.Warn("decisions cannot be logged", "error", err)
			warned = time.Now()
		}
	}
	return r.file.close()
}

// write writes all that is to be logged now.
func (r *Recorder) write() error {
	const batch = 256 << 10
	var (
		d     replay.Decision
		lines []byte
		n     float64
		errs  error
	)
	flush := func() {
		if len(lines) == 0 {
			return
		}
		if err := r.file.write(lines); err != nil {
			errs = err
			r.dropped.Add(n)
		} else {
			r.logged.Add(n)
		}
		lines, n = lines[:0], 0
	}
	for _, w := range r.pools {
		for w.next(&d) {
			lines = r.line(lines, &d, r.secret.name)
			n++
			if len(lines) >= batch {
				flush()
			}
		}
	}
	flush()
	return errs
}

// line adds a decision to b, without what tells the prompt. It changes d.
func (r *Recorder) line(b []byte, d *replay.Decision, adapter func(string) string) []byte {
	if d.Prompt != 0 {
		d.Prompt = r.secret.number(d.Prompt)
	}
	return d.Append(b, adapter)
}
