package scrape

import (
	"context"
	"slices"
	"time"

	"github.com/warmpath/warmpath/podstate"
)

// cardAge is how old a card may be: adapters are loaded by hand.
const cardAge = 30 * time.Second

// card is what seldom changes about a pod: which models it serves, and how long
// their context is.
type card struct {
	path   string         // empty: the engine has none
	told   podstate.Field // to the last stats
	asked  time.Time      // zero: never
	epoch  int            // of the pod, when it was asked
	length int            // 0: not known
	models []string       // nil: not known
	loads  []string       // adapters that can be loaded
}

// add puts the card into s, after asking for it when it is due.
func (c *card) add(ctx context.Context, t *target, s *podstate.Stats) {
	if c.path == "" {
		return
	}
	if now := t.cfg.now(); c.asked.IsZero() || now.Sub(c.asked) >= cardAge || c.epoch != s.Epoch {
		c.asked, c.epoch = now, s.Epoch
		c.ask(ctx, t)
	}
	c.told = 0
	if c.length > 0 && !s.Has(podstate.FieldMaxModelLen) {
		s.MaxModelLen = c.length
		c.told |= podstate.FieldMaxModelLen
	}
	if c.models != nil {
		s.Models, s.Loadable = c.models, c.loads
		c.told |= podstate.FieldModels
	}
	s.Known |= c.told
}

// ask reads the card. After an error what was known stays.
func (c *card) ask(ctx context.Context, t *target) {
	var answer struct {
		Data []struct { // OpenAI's /v1/models
			ID     string  `json:"id"`
			Parent *string `json:"parent"` // of an adapter, the model that it adapts
			Length *int    `json:"max_model_len"`
		} `json:"data"`
		Model  string `json:"model_id"` // TGI's /info
		Length int    `json:"max_total_tokens"`
	}
	if t.json(ctx, c.path, &answer) != nil || len(answer.Data) == 0 && answer.Model == "" {
		return
	}
	models, loads, length := []string{}, []string{}, answer.Length
	if answer.Model != "" {
		models = append(models, answer.Model)
	}
	for _, m := range answer.Data {
		switch {
		case m.ID == "":
		case m.Parent != nil && *m.Parent != "":
			loads = append(loads, m.ID)
		default:
			models = append(models, m.ID)
			if m.Length != nil {
				length = max(length, *m.Length)
			}
		}
	}
	// Equal lists keep their slices, so that readers may compare by the pointer.
	if !slices.Equal(models, c.models) || c.models == nil {
		c.models = models
	}
	if !slices.Equal(loads, c.loads) {
		c.loads = loads
	}
	c.length = length
}
