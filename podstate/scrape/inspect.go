package scrape

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"strings"
	"time"

	"github.com/warmpath/warmpath/podstate"
)

// Report is what warmpath reads from one pod, and what it misses.
type Report struct {
	URL     string
	Engine  string
	Headers Headers // what its response headers mean

	Path   string        // that is asked again and again; without the names in it
	Named  bool          // the pod sends the wanted series only
	Full   int           // bytes of the whole exposition
	Series int           // families in it
	Bytes  int           // of one scrape as it will be repeated, load endpoint included
	Took   time.Duration // of the same
	Bad    int           // wanted lines that could not be read

	Stats  *podstate.Stats
	Fields []ReportField
	Notes  []string // advice
}

// ReportField is one field of the stats.
type ReportField struct {
	Name    string
	Value   string        // empty: the pod does not report it
	Source  string        // series or path
	Age     time.Duration // of the value when it was read; 0 where the pod does not tell
	Missing string        // what it costs that there is no value; empty: little
}

// Inspect reads a pod as a Scraper would, and more of it. The URL is
// http://host:port, https://…, or host:port; a path in it is that of the metrics.
func Inspect(ctx context.Context, rawURL string, cfg Config) (*Report, error) {
	u, err := parseURL(rawURL)
	if err != nil {
		return nil, err
	}
	if u.Path != "" {
		cfg.Path = u.Path
	}
	if u.Scheme == "http" {
		cfg.TLS = nil
	} else if cfg.TLS == nil {
		return nil, fmt.Errorf("%s: no TLS configuration", rawURL)
	}
	s, err := New(cfg, nil, nil, nil)
	if err != nil {
		return nil, err
	}
	t := newTarget(&s.cfg, u.Host)
	defer t.close()
	return t.report(ctx, u.Scheme+"://"+u.Host)
}

func parseURL(raw string) (*url.URL, error) {
	text := raw
	if !strings.Contains(text, "://") {
		text = "http://" + text
	}
	u, err := url.Parse(text)
	if err != nil {
		return nil, fmt.Errorf("%q is not a URL: %w", raw, err)
	}
	if u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "" || u.RawQuery != "" || u.User != nil {
		return nil, fmt.Errorf("%q is not the URL of a pod; write http://10.0.0.1:8000 or 10.0.0.1:8000", raw)
	}
	if u.Port() == "" {
		port := "80"
		if u.Scheme == "https" {
			port = "443"
		}
		u.Host = net.JoinHostPort(u.Hostname(), port)
	}
	u.Path = strings.TrimSuffix(u.Path, "/")
	return u, nil
}

// Inspect reads a pod of the scraper's table afresh.
func (s *Scraper) Inspect(ctx context.Context, addr netip.AddrPort) (*Report, error) {
	scheme := "http://"
	if s.cfg.TLS != nil {
		scheme = "https://"
	}
	t := newTarget(&s.cfg, addr.String())
	defer t.close()
	return t.report(ctx, scheme+addr.String())
}

// report scrapes twice: the first contact, and a scrape as it will be repeated.
func (t *target) report(ctx context.Context, name string) (*Report, error) {
	r := &Report{URL: name}
	first, err := t.scrape(ctx, t.cfg.now())
	var status *statusError
	switch {
	case errors.As(err, &status) && status.status == 401 || errors.As(err, &status) && status.status == 403:
		return nil, fmt.Errorf("%s: %w; it wants a token", name, err)
	case errors.As(err, &status) || errors.Is(err, errNothing):
		return nil, fmt.Errorf("%s: %w; %s", name, err, switchedOff)
	case err != nil:
		return nil, fmt.Errorf("%s: %w", name, err)
	case t.prog == nil || first == nil:
		return nil, fmt.Errorf("%s: %w; %s", name, errNothing, switchedOff)
	}
	r.whole(ctx, t)
	start := t.cfg.now()
	t.full.At = time.Time{} // read the metrics, too
	s, err := t.scrape(ctx, start)
	if err != nil {
		return nil, fmt.Errorf("%s, asked again: %w", name, err)
	}
	if s == nil {
		s = first
	}
	r.Took = t.cfg.now().Sub(start)
	r.Stats, r.Engine, r.Headers, r.Bytes, r.Bad = s, t.prog.engine.name, t.prog.engine.headers, t.bytes, t.bad
	r.Path, r.Named = t.path, t.named != ""
	if r.Named {
		r.Path, _, _ = strings.Cut(t.named, "?")
	}
	r.fields(t)
	r.notes(t)
	return r, nil
}

const switchedOff = "metrics may be switched off (SGLang needs --enable-metrics, llama.cpp --metrics, " +
	"trtllm-serve return_perf_metrics) or be at another port or path"

// whole reads all that the pod has to say.
func (r *Report) whole(ctx context.Context, t *target) {
	a, err := t.metrics.get(ctx, t.path)
	if err != nil {
		return
	}
	defer a.free()
	r.Full = len(a.body)
	list, _ := families(a.body)
	r.Series = len(list)
}

// field describes a field of Stats to people.
type field struct {
	name    string
	is      podstate.Field
	from    []quantity
	value   func(s *podstate.Stats) string
	missing string
}

var reportFields = []field{
	{"running", podstate.FieldRunning, []quantity{running},
		func(s *podstate.Stats) string { return fmt.Sprintf("%g requests", s.Running) },
		"only what this gateway has sent is known, not what others send"},
	{"waiting", podstate.FieldWaiting, []quantity{waiting},
		func(s *podstate.Stats) string { return fmt.Sprintf("%g requests", s.Waiting) },
		"the pod's queue counts as the median of the pool's"},
	{"deferred", podstate.FieldDeferred, []quantity{deferred},
		func(s *podstate.Stats) string {
			return fmt.Sprintf("%g requests that wait for an adapter slot", s.Deferred)
		}, ""},
	{"load", podstate.FieldLoad, nil,
		func(s *podstate.Stats) string { return fmt.Sprintf("%g requests at this instant", s.Load) },
		"the load is as old as an engine step, which a long prompt makes seconds"},
	{"prefill", podstate.FieldPrefillTokens, nil,
		func(s *podstate.Stats) string { return fmt.Sprintf("%g tokens to be processed", s.PrefillTokens) }, ""},
	{"kvUsage", podstate.FieldKVUsage, []quantity{kvUsage, kvPercent, kvUsedBlocks, kvUsedTokens},
		func(s *podstate.Stats) string {
			return fmt.Sprintf("%.1f %%, fullest rank %.1f %%", 100*s.KVUsage, 100*s.KVPeak)
		},
		"a pod that is about to preempt looks like any other"},
	{"kvTokens", podstate.FieldKVTokens, []quantity{kvTokens, kvBlocks},
		func(s *podstate.Stats) string { return fmt.Sprintf("%d tokens", s.KVTokens) },
		"how much the pod's prefix cache holds is guessed"},
	{"blockTokens", podstate.FieldBlockTokens, []quantity{blockTokens},
		func(s *podstate.Stats) string { return fmt.Sprintf("%d tokens", s.BlockTokens) }, ""},
	{"maxRunning", podstate.FieldMaxRunning, []quantity{maxRunning},
		func(s *podstate.Stats) string { return fmt.Sprintf("%d requests", s.MaxRunning) }, ""},
	{"maxModelLen", podstate.FieldMaxModelLen, []quantity{maxModelLen},
		func(s *podstate.Stats) string { return fmt.Sprintf("%d tokens", s.MaxModelLen) },
		"prompts that cannot fit are sent there and refused"},
	{"prefixHits", podstate.FieldPrefixHits, []quantity{prefixHits, prefixQueries},
		func(s *podstate.Stats) string {
			return fmt.Sprintf("%g of %g tokens", s.PrefixHits, s.PrefixQueries)
		}, ""},
	{"promptTokens", podstate.FieldPromptTokens, []quantity{promptTokens},
		func(s *podstate.Stats) string { return fmt.Sprintf("%g", s.PromptTokens) },
		"a restart, which empties the caches, is noticed by failing requests only"},
	{"generationTokens", podstate.FieldGenerationTokens, []quantity{genTokens},
		func(s *podstate.Stats) string { return fmt.Sprintf("%g", s.GenerationTokens) }, ""},
	{"preemptions", podstate.FieldPreemptions, []quantity{preemptions},
		func(s *podstate.Stats) string { return fmt.Sprintf("%g", s.Preemptions) }, ""},
	{"asleep", podstate.FieldAsleep, []quantity{awake},
		func(s *podstate.Stats) string { return fmt.Sprint(s.Asleep) },
		"if the engine is put to sleep, requests hang until their timeout"},
	{"models", podstate.FieldModels, nil,
		func(s *podstate.Stats) string { return list(s.Models) }, ""},
	{"loadable", podstate.FieldModels, nil,
		func(s *podstate.Stats) string { return list(s.Loadable) },
		"adapters must be named in the config"},
	{"adapters", podstate.FieldAdapters, []quantity{adapters},
		func(s *podstate.Stats) string { return list(s.Adapters) },
		"which adapters hold slots is guessed from what was sent"},
	{"maxAdapters", podstate.FieldMaxAdapters, []quantity{maxAdapters},
		func(s *podstate.Stats) string { return fmt.Sprintf("%d slots", s.MaxAdapters) }, ""},
}

func list(names []string) string {
	if len(names) == 0 {
		return "none"
	}
	return strings.Join(names, ", ")
}

func (r *Report) fields(t *target) {
	now := t.cfg.now()
	for _, f := range reportFields {
		out := ReportField{Name: f.name}
		if r.Stats.Has(f.is) {
			out.Value = f.value(r.Stats)
			out.Source = t.source(f)
			if f.is == podstate.FieldAdapters {
				out.Age = t.reader.lora.age(now)
			}
		} else {
			out.Missing = f.missing
		}
		r.Fields = append(r.Fields, out)
	}
}

// source says where a field's value has come from.
func (t *target) source(f field) string {
	if path := t.loader.source(f.is); path != "" {
		return path
	}
	if f.is == podstate.FieldModels || f.is == podstate.FieldMaxModelLen && t.reader.whole(maxModelLen).parts == 0 {
		return t.card.kind.path()
	}
	var names []string
	for _, q := range f.from {
		if names = append(names, t.reader.sources(q)...); len(names) > 0 && q != prefixHits {
			break
		}
	}
	return strings.Join(names, " + ")
}

func (r *Report) notes(t *target) {
	note := func(format string, args ...any) { r.Notes = append(r.Notes, fmt.Sprintf(format, args...)) }
	s := r.Stats
	if s.Known == 0 {
		note("no known series yet: a server of several processes is silent until its first request")
	}
	if s.Asleep {
		note("the engine is asleep: its /health says 200, and requests hang")
	}
	if t.prog.engine.load == vllmLoad && !s.Has(podstate.FieldLoad) {
		note("load: /load has not been above 0; it counts only with --enable-server-load-tracking")
	}
	if t.prog.engine.load == llamaSlots && !s.Has(podstate.FieldLoad) {
		note("load: /slots is switched off (--slots)")
	}
	if t.prog.engine.named && !r.Named {
		note("the pod sends all of its series, or none, when asked for some (several API servers, or an old version): each scrape costs it about ten times as much")
	}
	if r.Bad > 0 {
		note("%d lines of wanted series cannot be read", r.Bad)
	}
	if r.Headers != HeadersFirstToken {
		note("response headers mean %v, so that the time to the first token is seen in the body only", r.Headers)
	}
}
