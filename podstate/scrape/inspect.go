package scrape

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"net/url"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/warmpath/warmpath/podstate"
)

// Inspect reads a pod as a Scraper would, and reports to people what is read and
// what is missing. The URL is http://host:port, https://…, or host:port; a path
// in it is that of the metrics.
func Inspect(ctx context.Context, rawURL string, cfg Config) (io.WriterTo, error) {
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
func (s *Scraper) Inspect(ctx context.Context, addr netip.AddrPort) (io.WriterTo, error) {
	scheme := "http://"
	if s.cfg.TLS != nil {
		scheme = "https://"
	}
	t := newTarget(&s.cfg, addr.String())
	defer t.close()
	return t.report(ctx, scheme+addr.String())
}

const switchedOff = "metrics may be switched off (SGLang needs --enable-metrics, llama.cpp --metrics, " +
	"trtllm-serve return_perf_metrics) or be at another port or path"

// report scrapes twice: the first contact, and a scrape as it will be repeated.
func (t *target) report(ctx context.Context, name string) (io.WriterTo, error) {
	first, err := t.scrape(ctx, t.cfg.now())
	var status *statusError
	switch refused := errors.As(err, &status); {
	case refused && (status.status == 401 || status.status == 403):
		return nil, fmt.Errorf("%s: %w; it wants a token", name, err)
	case refused || errors.Is(err, errNothing):
		return nil, fmt.Errorf("%s: %w; %s", name, err, switchedOff)
	case isTimeout(err):
		return nil, fmt.Errorf("%s: %w; the pod is busy or stuck, or it is not the right port", name, err)
	case err != nil:
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	var came, all string // when all series are asked for
	if a, err := t.metrics.get(ctx, t.path, maxMetrics); err != nil {
		came = err.Error()
	} else {
		came, all = a.String(), fmt.Sprintf(" (all: %.1f KB)", float64(a.body.Len())/1000)
		a.free()
	}
	start := t.cfg.now()
	t.full.At = time.Time{} // read the metrics, too
	s, err := t.scrape(ctx, start)
	if err != nil {
		return nil, fmt.Errorf("%s, asked again: %w", name, err)
	}
	took := t.cfg.now().Sub(start)
	if s == nil {
		s = first
	}
	out := new(bytes.Buffer)
	path, how := t.path, "all series"
	if t.named != "" {
		path, _, _ = strings.Cut(t.named, "?")
		how = "the wanted series only"
	}
	fmt.Fprintf(out, "%s is %s\n\nasked   %s for %s: %.1f KB in %v%s\n\n",
		name, s.Engine, path, how, float64(t.bytes)/1000, took.Round(100*time.Microsecond), all)
	t.table(out, s)
	t.notes(out, s, came)
	return out, nil
}

// field describes a field of the stats to people.
type field struct {
	name    string
	is      podstate.Field
	from    []quantity
	value   func(s *podstate.Stats) any
	unit    string
	missing string // what it costs not to know it; empty: little
}

var fields = []field{
	{"running", podstate.FieldRunning, []quantity{running}, func(s *podstate.Stats) any { return s.Running }, "requests",
		"only what this gateway has sent is known, not what others send"},
	{"waiting", podstate.FieldWaiting, []quantity{waiting}, func(s *podstate.Stats) any { return s.Waiting }, "requests",
		"the pod's queue counts as the median of the pool's"},
	{"deferred", podstate.FieldDeferred, []quantity{deferred}, func(s *podstate.Stats) any { return s.Deferred }, "requests that wait for an adapter slot", ""},
	{"load", podstate.FieldLoad, nil, func(s *podstate.Stats) any { return s.Load }, "requests at this instant",
		"the load is as old as an engine step, which a long prompt makes seconds"},
	{"prefill", podstate.FieldPrefillTokens, nil, func(s *podstate.Stats) any { return s.PrefillTokens }, "tokens to be processed", ""},
	{"kvUsage", podstate.FieldKVUsage, []quantity{kvUsage, kvPercent, kvUsedBlocks, kvUsedTokens},
		func(s *podstate.Stats) any {
			return fmt.Sprintf("%.1f %%, fullest rank %.1f %%", 100*s.KVUsage, 100*s.KVPeak)
		}, "",
		"a pod that is about to preempt looks like any other"},
	{"kvTokens", podstate.FieldKVTokens, []quantity{kvTokens, kvBlocks}, func(s *podstate.Stats) any { return s.KVTokens }, "tokens",
		"how much the pod's prefix cache holds is guessed"},
	{"blockTokens", podstate.FieldBlockTokens, []quantity{blockTokens}, func(s *podstate.Stats) any { return s.BlockTokens }, "tokens", ""},
	{"maxRunning", podstate.FieldMaxRunning, []quantity{maxRunning}, func(s *podstate.Stats) any { return s.MaxRunning }, "requests", ""},
	{"maxModelLen", podstate.FieldMaxModelLen, []quantity{maxModelLen}, func(s *podstate.Stats) any { return s.MaxModelLen }, "tokens",
		"prompts that cannot fit are sent there and refused"},
	{"prefixHits", podstate.FieldPrefixHits, []quantity{prefixHits, prefixQueries},
		func(s *podstate.Stats) any { return fmt.Sprintf("%v of %v", s.PrefixHits, s.PrefixQueries) }, "tokens", ""},
	{"promptTokens", podstate.FieldPromptTokens, []quantity{promptTokens}, func(s *podstate.Stats) any { return s.PromptTokens }, "",
		"a restart, which empties the caches, is noticed by failing requests only"},
	{"generationTokens", podstate.FieldGenerationTokens, []quantity{genTokens}, func(s *podstate.Stats) any { return s.GenerationTokens }, "", ""},
	{"preemptions", podstate.FieldPreemptions, []quantity{preemptions}, func(s *podstate.Stats) any { return s.Preemptions }, "", ""},
	{"asleep", podstate.FieldAsleep, []quantity{awake}, func(s *podstate.Stats) any { return s.Asleep }, "",
		"if the engine is put to sleep, requests hang until their timeout"},
	{"models", podstate.FieldModels, nil, func(s *podstate.Stats) any { return list(s.Models) }, "", ""},
	{"loadable", podstate.FieldModels, nil, func(s *podstate.Stats) any { return list(s.Loadable) }, "",
		"adapters must be named in the config"},
	{"adapters", podstate.FieldAdapters, []quantity{adapters}, func(s *podstate.Stats) any { return list(s.Adapters) }, "",
		"which adapters hold slots is guessed from what was sent"},
	{"maxAdapters", podstate.FieldMaxAdapters, []quantity{maxAdapters}, func(s *podstate.Stats) any { return s.MaxAdapters }, "slots", ""},
}

func list(names []string) string { return cmp.Or(strings.Join(names, ", "), "none") }

// table writes what is known, and what it costs that the rest is not.
func (t *target) table(out io.Writer, s *podstate.Stats) {
	tab := tabwriter.NewWriter(out, 0, 8, 2, ' ', 0)
	fmt.Fprintln(tab, "FIELD\tVALUE\tSOURCE")
	var missing []field
	for _, f := range fields {
		if !s.Has(f.is) {
			missing = append(missing, f)
			continue
		}
		value := strings.TrimSpace(fmt.Sprint(f.value(s), " ", f.unit))
		fmt.Fprintf(tab, "%s\t%s\t%s\n", f.name, value, t.source(f))
	}
	if len(missing) > 0 {
		fmt.Fprintln(tab, "\nNOT REPORTED\tWHAT THAT COSTS")
	}
	for _, f := range missing {
		fmt.Fprintf(tab, "%s\t%s\n", f.name, cmp.Or(f.missing, "little"))
	}
	_ = tab.Flush()
}

// source says where a field's value has come from.
func (t *target) source(f field) string {
	switch {
	case t.loader.told&f.is != 0:
		path, _, _ := strings.Cut(t.loader.from.path, "?")
		return path
	case t.card.told&f.is != 0:
		return t.card.path
	}
	var names []string
	for _, q := range f.from {
		if names = append(names, t.reader.sources(q)...); len(names) > 0 && q != prefixHits {
			break
		}
	}
	text := strings.Join(names, " + ")
	if f.is == podstate.FieldAdapters {
		text += fmt.Sprintf(" (%v old)", t.reader.lora.age(t.cfg.now()).Round(100*time.Millisecond))
	}
	return text
}

// sources lists the series that a quantity was read from.
func (r *reader) sources(q quantity) (names []string) {
	for _, i := range r.prog.byIs[q] {
		row := &r.prog.rows[i]
		if len(r.acc[i]) == 0 || len(names) > 0 && !row.plus {
			continue
		}
		name := row.name
		if row.where != "" {
			name += "{" + row.where + "}"
		}
		if row.label != "" {
			name += " " + row.label
		}
		names = append(names, name)
	}
	return names
}

// age is how long ago the newest combination of adapters was written.
func (l *lora) age(now time.Time) time.Duration {
	newest := 0.0
	for _, s := range l.now {
		newest = max(newest, l.time(s.value, float64(now.Unix())))
	}
	return max(0, now.Sub(time.UnixMilli(int64(1000*newest))))
}

// notes writes advice. came is what the pod has sent when asked for all.
func (t *target) notes(out io.Writer, s *podstate.Stats, came string) {
	before := "\n"
	note := func(format string, args ...any) {
		fmt.Fprintf(out, before+"note: "+format+"\n", args...)
		before = ""
	}
	if s.Known == 0 {
		note("no known series: %s; a server of several processes is silent until its first request", came)
		return // nothing else can be told from it
	}
	if s.Asleep {
		note("the engine is asleep: its /health says 200, and requests hang")
	}
	engine := t.prog.engine
	if engine.load != nil && engine.load.silent != "" && !s.Has(podstate.FieldLoad) {
		note("load: %s", engine.load.silent)
	}
	if engine.named && t.named == "" {
		note("the pod sends all of its series, or none, when asked for some (several API servers, or an old version): each scrape costs it about ten times as much")
	}
	if t.bad > 0 {
		note("%d lines of wanted series cannot be read", t.bad)
	}
	if engine.headers != HeadersFirstToken {
		note("response headers mean %v, so that the time to the first token is seen in the body only", engine.headers)
	}
}
