package scrape

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
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
	t.loader, t.card = loader{from: p.engine.load}, card{path: p.engine.card}
}

// Bounds of target.patience. A whole exposition is read each time it runs out.
const minPatience, maxPatience = 3, 300

// scrape asks the pod once. It returns new stats, which are the caller's, or nil
// if the pod has nothing new to say.
func (t *target) scrape(ctx context.Context, now time.Time) (*podstate.Stats, error) {
	t.bytes, t.bad = 0, 0
	t.metrics.until = t.cfg.now().Add(scrapeTime)
	t.serving.until = t.metrics.until
	s := &podstate.Stats{At: now}
	if t.loadOnly(now) {
		*s = t.full
		s.At = now
		if err := t.loader.ask(ctx, t, s); err != nil {
			return nil, err
		}
	} else if err := t.readAll(ctx, now, s); err != nil {
		return nil, err
	}
	if t.loader.repeats {
		return nil, nil
	}
	return s, nil
}

// readAll reads the metrics, the card and the load.
func (t *target) readAll(ctx context.Context, now time.Time, s *podstate.Stats) error {
	if err := t.read(ctx, now, s); err != nil {
		return err
	}
	s.Epoch = t.epoch + t.reader.epoch
	t.size = t.bytes
	if t.notice(s); t.prog == nil {
		return nil
	}
	t.card.add(ctx, t, s)
	if s.Epoch != t.full.Epoch { // another process, with other flags
		t.loader = loader{from: t.prog.engine.load}
	}
	t.full = *s
	_ = t.loader.ask(ctx, t, s) // the metrics are enough
	return nil
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

// read reads the metrics into s.
func (t *target) read(ctx context.Context, now time.Time, s *podstate.Stats) error {
	if t.prog == nil {
		return t.meet(ctx, now, s)
	}
	if t.named != "" {
		err := t.readAt(ctx, t.named, now, s)
		var status *statusError
		if err == nil && s.Known != 0 || err != nil && (!errors.As(err, &status) || status.status >= 500) {
			return err
		}
		t.named = "" // a server of several processes answers with nothing, an old one with 404
	}
	return t.readAt(ctx, t.path, now, s)
}

func (t *target) readAt(ctx context.Context, path string, now time.Time, s *podstate.Stats) error {
	a, err := t.metrics.get(ctx, path, maxMetrics)
	if err != nil {
		return err
	}
	defer a.free()
	return t.parse(a.body.Bytes(), now, s)
}

// meet is the first contact with a pod: it finds where its metrics are and which
// engine sends them.
func (t *target) meet(ctx context.Context, now time.Time, s *podstate.Stats) error {
	paths := []string{"/metrics", "/prometheus/metrics", "/v1/metrics"}
	if t.cfg.Path != "" {
		paths = []string{t.cfg.Path}
	}
	var refused, foreign error // the first of each
	for _, path := range paths {
		a, err := t.metrics.get(ctx, path, maxMetrics)
		var status *statusError
		if errors.As(err, &status) {
			refused = cmp.Or(refused, err)
			continue
		}
		if err != nil {
			return err
		}
		defer a.free()
		e := t.recognise(&a, path)
		if e == nil {
			foreign = cmp.Or(foreign, fmt.Errorf("%w: %v", errNothing, &a))
			continue
		}
		t.become(t.cfg.programs[e.name], path)
		if t.cfg.Path == "" {
			t.path = a.path // after a redirect: do not walk the detour each time
		}
		return t.parse(a.body.Bytes(), now, s)
	}
	return cmp.Or(foreign, refused)
}

// recognise names the engine of an answer, or returns nil.
func (t *target) recognise(a *answer, path string) *engine {
	text := a.body.Bytes()
	start := bytes.TrimSpace(text)
	if a.kind == "application/json" || bytes.HasPrefix(start, []byte("[")) || bytes.HasPrefix(start, []byte("{")) {
		// trtllm-serve has JSON at /metrics, and takes from it what it has sent: the
		// path must not be asked again.
		return nil
	}
	if e := detect(text, path); e != nil {
		return e
	}
	generic := t.cfg.programs["generic"] // its only series are those of the mapping
	var mapped scanner
	if mapped.reset(generic.names, text); len(t.cfg.Mapping) > 0 && mapped.next() {
		return generic.engine
	}
	return nil
}

func (t *target) parse(body []byte, now time.Time, s *podstate.Stats) error {
	t.bytes += len(body)
	bad, err := t.reader.read(body, now, s)
	t.bad += bad
	return err
}

// json asks the serving port for a JSON answer.
func (t *target) json(ctx context.Context, path string, into any) error {
	a, err := t.serving.get(ctx, path, maxJSON)
	if err != nil {
		return err
	}
	defer a.free()
	t.bytes += a.body.Len()
	return json.Unmarshal(a.body.Bytes(), into)
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
