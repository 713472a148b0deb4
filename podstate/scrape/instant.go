package scrape

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/warmpath/warmpath/podstate"
)

// loader asks an engine's endpoint of instant load, once it has shown that it
// can be trusted.
type loader struct {
	kind    instant
	trusted bool      // vLLM: it has been above zero
	lies    int       // times that it said zero while requests were running
	stamp   float64   // SGLang: its last timestamp,
	seen    time.Time // and when we saw it first
}

func newLoader(kind instant) loader { return loader{kind: kind} }

// maxLies is after how many zeros beside a running batch an endpoint counts as
// switched off.
const maxLies = 3

// ask adds the instant load to s. Failures leave it unknown: the metrics have
// been read and are enough.
func (l *loader) ask(ctx context.Context, t *target, s *podstate.Stats) {
	switch l.kind {
	case vllmLoad:
		l.vllm(ctx, t, s)
	case sglangLoads:
		l.sglang(ctx, t, s)
	case llamaSlots:
		l.llama(ctx, t, s)
	}
}

// fetch decodes a JSON answer. An endpoint that the server does not have is not
// asked again.
func (l *loader) fetch(ctx context.Context, t *target, path string, into any) bool {
	a, err := t.client.get(ctx, path)
	var status *statusError
	if errors.As(err, &status) && status.status < 500 {
		l.kind = noInstant
	}
	if err != nil {
		return false
	}
	defer a.free()
	t.bytes += len(a.body)
	return json.Unmarshal(a.body, into) == nil
}

// vllm reads /load. Without --enable-server-load-tracking it exists and says 0
// for ever, so that a zero means something only after another value.
func (l *loader) vllm(ctx context.Context, t *target, s *podstate.Stats) {
	var answer struct {
		Load *float64 `json:"server_load"`
	}
	now := t.cfg.now()
	if !l.fetch(ctx, t, "/load", &answer) || answer.Load == nil || *answer.Load < 0 {
		return
	}
	switch {
	case *answer.Load > 0:
		l.trusted = true
	case !l.trusted && s.Running > 0:
		if l.lies++; l.lies >= maxLies {
			l.kind = noInstant
		}
	}
	if l.trusted {
		s.Load, s.LoadAt = *answer.Load, now
		s.Known |= podstate.FieldLoad
	}
}

// sglang reads /v1/loads, which is right at each step, and inside a long one
// repeats what was so before it. Its timestamp shows that; ours is when we first
// saw the timestamp, so that the clocks need not agree.
func (l *loader) sglang(ctx context.Context, t *target, s *podstate.Stats) {
	type rank struct {
		Timestamp  float64 `json:"timestamp"`
		Running    float64 `json:"num_running_reqs"`
		Waiting    float64 `json:"num_waiting_reqs"`
		Uncached   float64 `json:"num_waiting_uncached_tokens"`
		MaxRunning int     `json:"max_running_requests"`
	}
	var answer struct {
		Timestamp json.RawMessage `json:"timestamp"` // of the answer; some versions write text
		Loads     []rank          `json:"loads"`
	}
	now := t.cfg.now()
	if !l.fetch(ctx, t, "/v1/loads?include=core", &answer) || len(answer.Loads) == 0 {
		return
	}
	var sum rank
	for _, r := range answer.Loads {
		sum.Running += r.Running
		sum.Waiting += r.Waiting
		sum.Uncached += r.Uncached
		sum.MaxRunning += r.MaxRunning
		sum.Timestamp = max(sum.Timestamp, r.Timestamp)
	}
	if sum.Timestamp != l.stamp || sum.Timestamp == 0 {
		l.stamp, l.seen = sum.Timestamp, now
	}
	s.Running, s.Waiting = sum.Running, sum.Waiting
	s.Load, s.LoadAt = sum.Running+sum.Waiting, l.seen
	s.PrefillTokens = sum.Uncached
	s.Known |= podstate.FieldRunning | podstate.FieldWaiting | podstate.FieldLoad | podstate.FieldPrefillTokens
	if sum.MaxRunning > 0 {
		s.MaxRunning = sum.MaxRunning
		s.Known |= podstate.FieldMaxRunning
	}
}

// llama reads /slots: one entry for each request that can run, with the progress
// of its prompt. Requests without a slot are in the metrics.
func (l *loader) llama(ctx context.Context, t *target, s *podstate.Stats) {
	var slots []struct {
		Processing bool    `json:"is_processing"`
		Prompt     float64 `json:"n_prompt_tokens"`
		Processed  float64 `json:"n_prompt_tokens_processed"`
		Cached     float64 `json:"n_prompt_tokens_cache"`
		Context    int     `json:"n_ctx"`
	}
	now := t.cfg.now()
	if !l.fetch(ctx, t, "/slots", &slots) || len(slots) == 0 {
		return
	}
	busy := 0.0
	for _, slot := range slots {
		if slot.Processing {
			busy++
			s.PrefillTokens += max(0, slot.Prompt-slot.Processed-slot.Cached)
		}
	}
	s.Load, s.LoadAt = busy+s.Waiting, now
	s.MaxRunning = len(slots)
	s.Known |= podstate.FieldLoad | podstate.FieldPrefillTokens | podstate.FieldMaxRunning
	if n := slots[0].Context; n > 0 {
		s.MaxModelLen = n
		s.Known |= podstate.FieldMaxModelLen
	}
}
