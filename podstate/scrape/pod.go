package scrape

import (
	"bytes"
	"context"
	"errors"
	"net/netip"
	"strings"
	"time"

	"github.com/warmpath/warmpath/podstate"
)

// errNothing is an answer without any series that is known.
var errNothing = errors.New("no known series in the answer")

// target is one pod as the scraper sees it. It is not safe for concurrent use.
type target struct {
	cfg    *Config
	client *client

	prog   *program // nil: the engine is not known yet
	reader *reader
	path   string // of the metrics
	named  string // path and query that send the wanted series only; empty: the pod does not know such

	epoch    int // carried over from the readers of other engines
	blind    int // good scrapes in a row without any known series
	patience int // blind scrapes until the engine is detected again
	bytes    int // read by the last scrape
	bad      int // wanted lines that it could not read
	stats    podstate.Stats
	loader   loader
}

func newTarget(cfg *Config, pod *podstate.Pod) *target {
	host := pod.Addr
	if cfg.Port != 0 {
		host = netip.AddrPortFrom(pod.Spec.Addr.Addr(), cfg.Port).String()
	}
	t := &target{cfg: cfg, client: newClient(cfg, host)}
	if cfg.program != nil {
		t.become(cfg.program, cfg.program.engine.path)
	}
	return t
}

// become sets the engine of the pod.
func (t *target) become(p *program, path string) {
	if t.reader != nil && t.reader.prog == p { // the same once more: it has nothing to say
		t.patience = min(2*t.patience, maxPatience)
	} else {
		if t.reader != nil {
			t.epoch += t.reader.epoch + 1
		}
		t.reader, t.patience = newReader(p), minPatience
	}
	t.prog, t.path, t.named = p, path, ""
	if t.cfg.Path != "" {
		t.path = t.cfg.Path
	}
	if p.engine.named && t.path == p.engine.path {
		t.named = t.path + "/?name[]=" + strings.Join(p.names.list, "&name[]=")
	}
	t.loader = newLoader(p.engine.load)
}

// Bounds of target.patience. A whole exposition is read each time it runs out.
const minPatience, maxPatience = 3, 300

// scrape reads the pod's metrics once. It returns new stats, which are the
// caller's.
func (t *target) scrape(ctx context.Context, now time.Time) (*podstate.Stats, error) {
	t.bytes, t.bad = 0, 0
	s := &podstate.Stats{At: now}
	if err := t.metrics(ctx, now, s); err != nil {
		return nil, err
	}
	s.Epoch = t.epoch + t.reader.epoch
	t.loader.ask(ctx, t, s)
	t.notice(s)
	return s, nil
}

func (t *target) metrics(ctx context.Context, now time.Time, s *podstate.Stats) error {
	if t.prog == nil {
		return t.meet(ctx, now, s)
	}
	if t.named != "" {
		a, err := t.client.get(ctx, t.named)
		var status *statusError
		switch {
		case err == nil:
			defer a.free()
			// Servers of several processes answer with nothing.
			if t.read(a.body, now, s); s.Known != 0 {
				return nil
			}
		case !errors.As(err, &status) || status.status >= 500:
			return err
		}
		t.named = ""
	}
	a, err := t.client.get(ctx, t.path)
	if err != nil {
		return err
	}
	defer a.free()
	t.read(a.body, now, s)
	return nil
}

// meet is the first contact with a pod: it finds where its metrics are and which
// engine sends them.
func (t *target) meet(ctx context.Context, now time.Time, s *podstate.Stats) error {
	paths := []string{"/metrics", "/prometheus/metrics", "/v1/metrics"}
	if t.cfg.Path != "" {
		paths = []string{t.cfg.Path}
	}
	result := errNothing
	for _, path := range paths {
		a, err := t.client.get(ctx, path)
		var status *statusError
		if errors.As(err, &status) {
			result = err
			continue
		}
		if err != nil {
			return err
		}
		// trtllm-serve has JSON at /metrics, and takes from it what it has sent: the
		// path is not asked again.
		e := detect(a.body)
		if e == nil && path == "/prometheus/metrics" && !isJSON(a) {
			e, _ = engineByName("trtllm") // its first versions had no prefix
		}
		if e == nil && len(t.cfg.Mapping) > 0 && !isJSON(a) {
			e, _ = engineByName("generic")
		}
		if e == nil {
			result = errNothing
			a.free()
			continue
		}
		t.become(t.cfg.programs[e.name], path)
		if t.cfg.Path == "" {
			t.path = a.path // after a redirect: do not walk the detour each time
		}
		t.read(a.body, now, s)
		a.free()
		return nil
	}
	return result
}

func (t *target) read(body []byte, now time.Time, s *podstate.Stats) {
	t.bytes += len(body)
	t.bad += t.reader.read(body, now, s)
}

// notice looks whether the engine may have become another one: a pod of the same
// address whose known series are gone.
func (t *target) notice(s *podstate.Stats) {
	if s.Known != 0 {
		t.blind, t.patience = 0, minPatience
		return
	}
	if t.blind++; t.blind >= t.patience && t.cfg.program == nil {
		t.blind, t.prog = 0, nil
	}
}

func isJSON(a answer) bool {
	body := bytes.TrimSpace(a.body)
	return a.kind == "application/json" || len(body) > 0 && (body[0] == '[' || body[0] == '{')
}
