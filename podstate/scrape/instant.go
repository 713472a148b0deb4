package scrape

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/warmpath/warmpath/podstate"
)

// instant is an endpoint that tells the load of this moment, unlike gauges,
// which are one engine step old and blind inside a long prefill.
type instant struct {
	path     string
	read     func(l *loader, ctx context.Context, t *target, s *podstate.Stats) error
	complete bool   // it tells as much about the load as the metrics do
	silent   string // for people: why it may tell nothing
}

var (
	vllmLoad = &instant{path: "/load", read: (*loader).vllm,
		silent: "/load has not been above 0; it counts only with --enable-server-load-tracking"}
	sglangLoads = &instant{path: "/v1/loads?include=core", read: (*loader).sglang, complete: true}
	llamaSlots  = &instant{path: "/slots", read: (*loader).llama,
		silent: "/slots is switched off (--slots)"}
)

// loader asks an engine's endpoint of instant load.
type loader struct {
	from    *instant       // nil: there is none
	told    podstate.Field // by its last answer
	trusted bool           // vLLM: it has been above zero
	lies    int            // vLLM: times in a row that it said zero while requests were running
	stamp   float64        // SGLang: its last timestamp
	repeats bool           // SGLang: the last answer was that of an earlier moment
}

// maxLies is after how many zeros beside a running batch an endpoint counts as
// switched off.
const maxLies = 3

// complete reports whether metrics are not needed to know the load.
func (l *loader) complete() bool { return l.from != nil && l.from.complete }

// ask adds the instant load to s. An endpoint that the server does not have is
// not asked again.
func (l *loader) ask(ctx context.Context, t *target, s *podstate.Stats) error {
	l.repeats, l.told = false, 0
	if l.from == nil {
		return nil
	}
	others := s.Known
	s.Known = 0
	err := l.from.read(l, ctx, t, s)
	l.told = s.Known
	s.Known |= others
	var status *statusError
	if errors.As(err, &status) && status.status < 500 {
		l.from = nil
	}
	return err
}

// vllm reads /load. Without --enable-server-load-tracking it exists and says 0
// for ever, so that a zero means something only after another value.
func (l *loader) vllm(ctx context.Context, t *target, s *podstate.Stats) error {
	var answer struct {
		Load *float64 `json:"server_load"`
	}
	now := t.cfg.now()
	if err := t.json(ctx, l.from.path, &answer); err != nil {
		return err
	}
	if answer.Load == nil || *answer.Load < 0 {
		return errors.New("/load has no server_load")
	}
	switch {
	case *answer.Load > 0:
		l.trusted, l.lies = true, 0
	case s.Running > 0:
		if l.lies++; l.lies >= maxLies {
			l.trusted, l.from = false, nil
		}
	}
	if l.trusted {
		s.Load, s.LoadAt = *answer.Load, now
		s.Known |= podstate.FieldLoad
	}
	return nil
}

// sglangRank is what /v1/loads says of one data-parallel rank.
type sglangRank struct {
	Timestamp  float64 `json:"timestamp"`
	Running    float64 `json:"num_running_reqs"`
	Waiting    float64 `json:"num_waiting_reqs"`
	Uncached   float64 `json:"num_waiting_uncached_tokens"`
	Usage      float64 `json:"token_usage"`
	Tokens     int     `json:"max_total_num_tokens"`
	MaxRunning int     `json:"max_running_requests"`
}

// sglang reads /v1/loads, which is right at each step, and inside a long one
// repeats what was so before it. Its timestamp shows that, without a need for
// our clocks to agree: an answer with the same timestamp is the same answer.
func (l *loader) sglang(ctx context.Context, t *target, s *podstate.Stats) error {
	var answer struct {
		Loads []sglangRank `json:"loads"`
	}
	now := t.cfg.now()
	if err := t.json(ctx, l.from.path, &answer); err != nil {
		return err
	}
	if len(answer.Loads) == 0 {
		return errors.New("/v1/loads has no ranks")
	}
	var sum sglangRank
	peak := 0.0
	for _, r := range answer.Loads {
		sum.Running += r.Running
		sum.Waiting += r.Waiting
		sum.Uncached += r.Uncached
		sum.Usage += r.Usage / float64(len(answer.Loads))
		sum.Tokens += r.Tokens
		sum.MaxRunning += r.MaxRunning
		sum.Timestamp += r.Timestamp // of the sum, too, it is true that it repeats
		peak = max(peak, r.Usage)
	}
	if min(sum.Running, sum.Waiting, sum.Uncached) < 0 || peak > 1.05 {
		return fmt.Errorf("/v1/loads is out of bounds: %+v", sum)
	}
	l.repeats = sum.Timestamp == l.stamp && sum.Timestamp != 0
	l.stamp = sum.Timestamp
	s.Running, s.Waiting = sum.Running, sum.Waiting
	s.Load, s.LoadAt = sum.Running+sum.Waiting, now
	s.PrefillTokens = sum.Uncached
	s.KVUsage, s.KVPeak = min(sum.Usage, 1), min(peak, 1)
	s.Known |= podstate.FieldRunning | podstate.FieldWaiting | podstate.FieldLoad | podstate.FieldPrefillTokens | podstate.FieldKVUsage
	if sum.Tokens > 0 {
		s.KVTokens = sum.Tokens
		s.Known |= podstate.FieldKVTokens
	}
	if sum.MaxRunning > 0 {
		s.MaxRunning = sum.MaxRunning
		s.Known |= podstate.FieldMaxRunning
	}
	return nil
}

// llamaSlot is what /slots says of one slot.
type llamaSlot struct {
	Processing bool       `json:"is_processing"`
	Prompt     float64    `json:"n_prompt_tokens"` // grows with each generated token
	Processed  float64    `json:"n_prompt_tokens_processed"`
	Cached     float64    `json:"n_prompt_tokens_cache"`
	Context    int        `json:"n_ctx"`
	Next       nextTokens `json:"next_token"`
}

// nextTokens is a list in newer versions and one object in older ones.
type nextTokens []struct {
	Decoded int `json:"n_decoded"`
}

// UnmarshalJSON implements json.Unmarshaler.
func (n *nextTokens) UnmarshalJSON(b []byte) error {
	if len(b) > 0 && b[0] == '{' {
		b = slices.Concat([]byte{'['}, b, []byte{']'})
	}
	type plain nextTokens
	return json.Unmarshal(b, (*plain)(n))
}

// prefilling is how many prompt tokens are to be processed yet.
func (s *llamaSlot) prefilling() float64 {
	if !s.Processing || len(s.Next) == 0 || s.Next[0].Decoded > 0 {
		return 0
	}
	return max(0, s.Prompt-s.Processed-s.Cached)
}

// llama reads /slots: one entry for each request that can run, with the progress
// of its prompt. Requests without a slot are in the metrics.
func (l *loader) llama(ctx context.Context, t *target, s *podstate.Stats) error {
	var slots []llamaSlot
	now := t.cfg.now()
	if err := t.json(ctx, l.from.path, &slots); err != nil {
		return err
	}
	if len(slots) == 0 {
		return errors.New("/slots is empty")
	}
	busy := 0.0
	for i := range slots {
		if slots[i].Processing {
			busy++
			s.PrefillTokens += slots[i].prefilling()
		}
	}
	s.Running = busy
	s.Load, s.LoadAt = busy+s.Waiting, now
	s.MaxRunning = len(slots)
	s.Known |= podstate.FieldRunning | podstate.FieldLoad | podstate.FieldPrefillTokens | podstate.FieldMaxRunning
	if n := slots[0].Context; n > 0 {
		s.MaxModelLen = n
		s.Known |= podstate.FieldMaxModelLen
	}
	return nil
}
