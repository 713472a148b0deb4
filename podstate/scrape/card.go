package scrape

import (
	"context"
	"slices"
	"time"

	"github.com/warmpath/warmpath/podstate"
)

// cardKind is where an engine says which models it serves and how long their
// context is.
type cardKind uint8

const (
	noCard      cardKind = iota
	openAICard           // /v1/models
	tgiInfoCard          // /info
)

// cardAge is how old a card may be: adapters are loaded by hand.
const cardAge = 30 * time.Second

// card is what seldom changes about a pod.
type card struct {
	kind   cardKind
	asked  time.Time // zero: never
	epoch  int       // of the pod, when it was asked
	length int       // 0: not known
	models []string  // nil: not known
	loads  []string  // adapters that can be loaded
}

// add puts the card into s, after asking for it when it is due.
func (c *card) add(ctx context.Context, t *target, s *podstate.Stats) {
	if c.kind == noCard {
		return
	}
	if now := t.cfg.now(); c.asked.IsZero() || now.Sub(c.asked) >= cardAge || c.epoch != s.Epoch {
		c.asked, c.epoch = now, s.Epoch
		switch c.kind {
		case openAICard:
			c.openAI(ctx, t)
		case tgiInfoCard:
			c.tgi(ctx, t)
		}
	}
	if c.length > 0 && !s.Has(podstate.FieldMaxModelLen) {
		s.MaxModelLen = c.length
		s.Known |= podstate.FieldMaxModelLen
	}
	if c.models != nil {
		s.Models, s.Loadable = c.models, c.loads
		s.Known |= podstate.FieldModels
	}
}

func (c *card) openAI(ctx context.Context, t *target) {
	var answer struct {
		Data []struct {
			ID     string  `json:"id"`
			Parent *string `json:"parent"` // of an adapter, the model that it adapts
			Length *int    `json:"max_model_len"`
		} `json:"data"`
	}
	if t.json(ctx, "/v1/models", &answer) != nil || len(answer.Data) == 0 {
		return
	}
	models, loads, length := []string{}, []string{}, 0
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

func (c *card) tgi(ctx context.Context, t *target) {
	var answer struct {
		Model  string `json:"model_id"`
		Length int    `json:"max_total_tokens"`
	}
	if t.json(ctx, "/info", &answer) != nil || answer.Model == "" {
		return
	}
	c.models, c.length = []string{answer.Model}, answer.Length
}
