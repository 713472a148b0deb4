package scrape

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/url"
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
	base   string // scheme://host:port

	prog   *program // nil: the engine is not known yet
	reader *reader
	path   string // of the metrics
	named  string // path and query that send the wanted series only; empty: the pod does not know such

	epoch  int // carried over from the reader of another engine
	blind  int // good scrapes in a row without any load
	bytes  int // read by the last scrape
	bad    int // wanted lines that it could not read
	stats  podstate.Stats
	loader loader
}

func newTarget(cfg *Config, c *client, pod *podstate.Pod) *target {
	addr := pod.Spec.Addr
	scheme := "http"
	if cfg.TLS != nil {
		scheme = "https"
	}
	host := pod.Addr
	if cfg.Port != 0 {
		host = fmt.Sprintf("%s:%d", bracketed(addr.Addr().String()), cfg.Port)
	}
	t := &target{cfg: cfg, client: c, base: scheme + "://" + host}
	if cfg.program != nil {
		t.become(cfg.program, cfg.program.engine.path)
	}
	return t
}

func bracketed(ip string) string {
	if strings.Contains(ip, ":") {
		return "[" + ip + "]"
	}
	return ip
}

// become sets the engine of the pod.
func (t *target) become(p *program, path string) {
	if t.reader != nil {
		t.epoch += t.reader.epoch + 1
	}
	t.prog, t.reader, t.path, t.named = p, newReader(p), path, ""
	if t.cfg.Path != "" {
		t.path = t.cfg.Path
	}
	if p.engine.named && t.path == p.engine.path {
		t.named = t.path + "/?name[]=" + strings.Join(p.names.list, "&name[]=")
	}
	t.loader = newLoader(p.engine.load)
}

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
		a, err := t.client.get(ctx, t.base+t.named)
		var status *statusError
		switch {
		case err == nil:
			defer a.release()
			// Servers of several processes answer with nothing.
			if t.read(a.body, now, s); s.Known != 0 {
				return nil
			}
		case !errors.As(err, &status) || status.status >= 500:
			return err
		}
		t.named = ""
	}
	a, err := t.client.get(ctx, t.base+t.path)
	if err != nil {
		return err
	}
	defer a.release()
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
		a, err := t.client.get(ctx, t.base+path)
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
			a.release()
			continue
		}
		t.become(t.cfg.programs[e.name], path)
		if u, err := url.Parse(a.url); err == nil && u.Path != path && t.cfg.Path == "" {
			t.path = u.Path // redirected: do not walk the detour each time
		}
		t.read(a.body, now, s)
		a.release()
		return nil
	}
	return result
}

func (t *target) read(body []byte, now time.Time, s *podstate.Stats) {
	t.bytes += len(body)
	t.bad += t.reader.read(body, now, s)
}

// notice looks whether the engine has become another one: a pod of the same
// address whose known series are gone.
func (t *target) notice(s *podstate.Stats) {
	if s.Known != 0 {
		t.blind = 0
		return
	}
	if t.blind++; t.blind >= 3 && t.cfg.program == nil {
		t.blind = 0
		t.epoch += t.reader.epoch + 1
		t.prog, t.reader = nil, nil
	}
}

func isJSON(a answer) bool {
	body := bytes.TrimSpace(a.body)
	return a.kind == "application/json" || len(body) > 0 && (body[0] == '[' || body[0] == '{')
}
