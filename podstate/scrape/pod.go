package scrape

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"net"
	"strconv"
	"strings"
	"time"

	"github.com/warmpath/warmpath/podstate"
)

// errNothing is an answer without any series that is known.
var errNothing = errors.New("no known series in the answer")

// target is one pod as the scraper sees it. It is not safe for concurrent use.
type target struct {
	cfg     *Config
	metrics *client // to where the metrics are
	serving *client // to where the pod serves; the same client if it is the same port

	prog   *program // nil: the engine is not known yet
	reader *reader
	path   string // of the metrics
	named  string // path and query that send the wanted series only; empty: the pod does not know such
	loader loader
	card   card

	epoch    int            // carried over from the readers of other engines
	blind    int            // good scrapes in a row without any known series
	patience int            // blind scrapes until the engine is detected again
	full     podstate.Stats // of the last reading of the metrics
	size     int            // of that reading, bytes

	bytes int // read by the last scrape
	bad   int // wanted lines that it could not read
}

// newTarget wants the host:port at which the pod serves.
func newTarget(cfg *Config, host string) *target {
	t := &target{cfg: cfg, serving: newClient(cfg, host)}
	t.metrics = t.serving
	if name, port, _ := net.SplitHostPort(host); cfg.Port != 0 && port != strconv.Itoa(int(cfg.Port)) {
		t.metrics = newClient(cfg, net.JoinHostPort(name, strconv.Itoa(int(cfg.Port))))
	}
	if cfg.program != nil {
		t.become(cfg.program, cfg.program.engine.path)
	}
	return t
}

func (t *target) close() {
	t.metrics.close()
	t.serving.close()
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
	t.loader, t.card = loader{kind: p.engine.load}, card{kind: p.engine.card}
}

// Bounds of target.patience. A whole exposition is read each time it runs out.
const minPatience, maxPatience = 3, 300

// scrape asks the pod once. It returns new stats, which are the caller's, or nil
// if the pod has nothing new to say.
func (t *target) scrape(ctx context.Context, now time.Time) (*podstate.Stats, error) {
	t.bytes, t.bad = 0, 0
	if t.loadOnly(now) {
		s := t.full
		s.At = now
		if err := t.loader.ask(ctx, t, &s); err != nil {
			return nil, err
		}
		return t.news(&s), nil
	}
	s := &podstate.Stats{At: now}
	if err := t.read(ctx, now, s); err != nil {
		return nil, err
	}
	s.Epoch = t.epoch + t.reader.epoch
	t.size = t.bytes
	t.notice(s)
	if t.prog != nil {
		t.card.add(ctx, t, s)
		if s.Epoch != t.full.Epoch { // another process, with other flags
			t.loader = loader{kind: t.prog.engine.load}
		}
		t.full = *s
		_ = t.loader.ask(ctx, t, s) // the metrics are enough
	}
	return t.news(s), nil
}

// loadOnly says that it is too early to read the metrics again, and that the
// load endpoint tells enough meanwhile.
func (t *target) loadOnly(now time.Time) bool {
	return t.prog != nil && t.loader.complete() && !t.full.At.IsZero() && now.Sub(t.full.At) < t.prog.engine.floor*9/10
}

// floor is the shortest pause that the pod's engine bears.
func (t *target) floor() time.Duration {
	if t.prog == nil || t.loader.complete() {
		return 0
	}
	return t.prog.engine.floor
}

// light says that a scrape costs the pod little.
func (t *target) light() bool { return t.prog != nil && (t.loader.complete() || t.size <= cheap) }

func (t *target) news(s *podstate.Stats) *podstate.Stats {
	if t.loader.repeats {
		return nil
	}
	return s
}

// read reads the metrics into s.
func (t *target) read(ctx context.Context, now time.Time, s *podstate.Stats) error {
	if t.prog == nil {
		return t.meet(ctx, now, s)
	}
	if t.named != "" {
		a, err := t.metrics.get(ctx, t.named)
		var status *statusError
		switch {
		case err == nil:
			defer a.free()
			// Servers of several processes answer with nothing.
			if t.parse(a.body, now, s); s.Known != 0 {
				return nil
			}
		case !errors.As(err, &status) || status.status >= 500:
			return err
		}
		t.named = ""
	}
	a, err := t.metrics.get(ctx, t.path)
	if err != nil {
		return err
	}
	defer a.free()
	t.parse(a.body, now, s)
	return nil
}

// meet is the first contact with a pod: it finds where its metrics are and which
// engine sends them.
func (t *target) meet(ctx context.Context, now time.Time, s *podstate.Stats) error {
	paths := []string{"/metrics", "/prometheus/metrics", "/v1/metrics"}
	if t.cfg.Path != "" {
		paths = []string{t.cfg.Path}
	}
	var result error
	for _, path := range paths {
		a, err := t.metrics.get(ctx, path)
		var status *statusError
		if errors.As(err, &status) {
			if result == nil {
				result = err
			}
			continue
		}
		if err != nil {
			return err
		}
		e := t.recognise(a, path)
		if e == nil {
			result = errNothing
			a.free()
			continue
		}
		t.become(t.cfg.programs[e.name], path)
		if t.cfg.Path == "" {
			t.path = a.path // after a redirect: do not walk the detour each time
		}
		t.parse(a.body, now, s)
		a.free()
		return nil
	}
	return result
}

// recognise names the engine of an answer, or returns nil.
func (t *target) recognise(a answer, path string) *engine {
	body := bytes.TrimSpace(a.body)
	if a.kind == "application/json" || len(body) > 0 && (body[0] == '[' || body[0] == '{') {
		// trtllm-serve has JSON at /metrics, and takes from it what it has sent: the
		// path must not be asked again.
		return nil
	}
	e := detect(a.body)
	if e == nil && path == "/prometheus/metrics" {
		e, _ = engineByName("trtllm") // its first versions had no prefix
	}
	if e == nil && len(t.cfg.Mapping) > 0 {
		e, _ = engineByName("generic")
	}
	return e
}

func (t *target) parse(body []byte, now time.Time, s *podstate.Stats) {
	t.bytes += len(body)
	t.bad += t.reader.read(body, now, s)
}

// json asks the serving port for a JSON answer.
func (t *target) json(ctx context.Context, path string, into any) error {
	a, err := t.serving.get(ctx, path)
	if err != nil {
		return err
	}
	defer a.free()
	t.bytes += len(a.body)
	return json.Unmarshal(a.body, into)
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
