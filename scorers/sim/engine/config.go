package engine

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// Config is one kind of model server: a model on a GPU.
type Config struct {
	Speed Speed

	KVTokens     int // tokens that the KV cache holds
	BlockTokens  int // tokens in one block of it
	MaxSeqs      int // requests in the batch
	TokenBudget  int // tokens that one step computes at most; not below MaxSeqs
	MaxModelLen  int // prompt and output of one request
	AdapterSlots int // LoRA adapters in the batch; 0 for none

	AdapterLoad  time.Duration // from host memory into a slot
	AdapterFetch time.Duration // from disk to host memory, at the first use
}

// Speed says how long a step takes:
//
//	Overhead + max(Floor, PerToken·tokens) + Attention·Σ looked back at
//	+ PerContext·(tokens held by decoding requests) + PerSeq·(decoding requests)
//
// all of it stretched by PerAdapter for each adapter in the batch. Seconds.
type Speed struct {
	Overhead   float64 // of every step
	Floor      float64 // to read the weights once
	PerToken   float64 // computed, prompt and decode alike
	Attention  float64 // for each prompt token and each token before it
	PerContext float64
	PerSeq     float64
	PerAdapter float64 // share
}

func (c *Config) stepTime(s *step, decoders, context, adapters int) time.Duration {
	v := &c.Speed
	t := v.Overhead + max(v.Floor, v.PerToken*float64(s.tokens+decoders)) + v.Attention*s.attention +
		v.PerContext*float64(context) + v.PerSeq*float64(decoders)
	t *= 1 + v.PerAdapter*float64(adapters)
	return max(1, time.Duration(t*1e9)) + s.load
}

func (c *Config) validate() error {
	switch {
	case c.BlockTokens < 1:
		return fmt.Errorf("block of %d tokens: at least 1", c.BlockTokens)
	case c.KVTokens < 2*c.BlockTokens:
		return fmt.Errorf("KV cache of %d tokens: at least two blocks of %d", c.KVTokens, c.BlockTokens)
	case c.MaxSeqs < 1 || c.TokenBudget < c.MaxSeqs:
		return fmt.Errorf("batch of %d requests in a budget of %d tokens: at least 1, and not above the budget", c.MaxSeqs, c.TokenBudget)
	case c.MaxModelLen < 2 || c.MaxModelLen > c.KVTokens-2*c.BlockTokens:
		return fmt.Errorf("model length %d: from 2 to %d, so that one request fits the KV cache", c.MaxModelLen, c.KVTokens-2*c.BlockTokens)
	case c.AdapterSlots < 0 || c.AdapterLoad < 0 || c.AdapterFetch < 0:
		return errors.New("adapter slots and times must not be negative")
	}
	return nil
}

const ms = 1e-3

// presets are the kinds that have a name. GPU speeds are public measurements and
// kernel profiles of dense BF16 models, rounded; those of the A10G and of the
// 32B and 235B models are estimates from memory bandwidth and arithmetic rate.
// cpu-70m is a real vLLM server on two CPU cores, fitted to a sweep of single
// requests; the tests compare the model with what that server did under load.
var presets = map[string]Config{
	"h100-8b": {Speed: Speed{Overhead: 1 * ms, Floor: 6 * ms, PerToken: 0.025 * ms, Attention: 1.3e-6 * ms, PerContext: 4.9e-5 * ms, PerSeq: 0.02 * ms},
		KVTokens: 430_000, TokenBudget: 8192},
	"a10g-8b": {Speed: Speed{Overhead: 1.5 * ms, Floor: 33 * ms, PerToken: 0.3125 * ms, Attention: 1.3e-5 * ms, PerContext: 2.9e-4 * ms, PerSeq: 0.02 * ms},
		KVTokens: 30_000, TokenBudget: 2048},
	"h100-32b": {Speed: Speed{Overhead: 1.5 * ms, Floor: 12 * ms, PerToken: 0.0625 * ms, Attention: 1.6e-6 * ms, PerContext: 4.9e-5 * ms, PerSeq: 0.02 * ms},
		KVTokens: 307_000, TokenBudget: 8192},
	"a10g-32b": {Speed: Speed{Overhead: 3 * ms, Floor: 28 * ms, PerToken: 0.45 * ms, Attention: 1.6e-5 * ms, PerContext: 6.8e-5 * ms, PerSeq: 0.02 * ms},
		KVTokens: 200_000, TokenBudget: 2048},
	"h100-70b": {Speed: Speed{Overhead: 1.5 * ms, Floor: 19 * ms, PerToken: 0.077 * ms, Attention: 1.6e-6 * ms, PerContext: 3.1e-5 * ms, PerSeq: 0.02 * ms},
		KVTokens: 412_000, TokenBudget: 8192},
	"a100-70b": {Speed: Speed{Overhead: 1.5 * ms, Floor: 30 * ms, PerToken: 0.182 * ms, Attention: 3.8e-6 * ms, PerContext: 5.1e-5 * ms, PerSeq: 0.02 * ms},
		KVTokens: 412_000, TokenBudget: 2048},
	"h100-235b": {Speed: Speed{Overhead: 2 * ms, Floor: 23 * ms, PerToken: 0.045 * ms, Attention: 1.2e-6 * ms, PerContext: 1.8e-5 * ms, PerSeq: 0.02 * ms},
		KVTokens: 230_000, TokenBudget: 8192},
	"cpu-70m": {Speed: Speed{Overhead: 14 * ms, PerToken: 0.717 * ms, Attention: 0.316e-3 * ms, PerContext: 1.3e-3 * ms},
		KVTokens: 100_000, TokenBudget: 2048, MaxSeqs: 16, BlockTokens: 128, MaxModelLen: 8192},
}

// Preset returns a named kind. Its other settings are those that a server of
// that kind starts with: 256 requests in the batch, blocks of 16 tokens, eight
// adapter slots, requests up to 131,072 tokens or what the cache holds.
func Preset(name string) (Config, error) {
	c, ok := presets[name]
	if !ok {
		return Config{}, fmt.Errorf("unknown model server %q; known: %s", name, strings.Join(slices.Sorted(maps.Keys(presets)), ", "))
	}
	if c.BlockTokens == 0 {
		c.BlockTokens = 16
	}
	if c.MaxSeqs == 0 {
		c.MaxSeqs = 256
	}
	if c.MaxModelLen == 0 {
		c.MaxModelLen = min(131_072, c.KVTokens-2*c.BlockTokens)
	}
	c.AdapterSlots = 8
	c.AdapterLoad = 8 * time.Millisecond
	c.AdapterFetch = 100 * time.Millisecond
	c.Speed.PerAdapter = 0.0097
	return c, nil
}
