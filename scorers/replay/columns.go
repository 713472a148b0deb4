package replay

import (
	"github.com/warmpath/warmpath/podstate"
)

type (
	candidate = podstate.Candidate
	field     = podstate.Field
)

// column is one value of all candidates of a decision. of returns a pointer to
// it, so that one table serves writing and reading.
type column struct {
	name  string
	field field // of Stats, that must be known for the value to mean anything; 0: none
	of    func(*candidate) any
}

// columns are everything that a scorer can see of a pod, but for labels and UID
// of Spec, which no scorer reads.
var columns = []column{
	{"name", 0, func(c *candidate) any { return &c.Pod.Spec.Name }},
	{"addr", 0, func(c *candidate) any { return &c.Pod.Spec.Addr }},
	{"slot", 0, func(c *candidate) any { return &c.Pod.Slot }},

	{"cached", 0, func(c *candidate) any { return &c.Cached }},
	{"adapter", 0, func(c *candidate) any { return &c.Adapter }},
	{"adapterWait", 0, func(c *candidate) any { return &c.AdapterWait }},
	{"requests", 0, func(c *candidate) any { return &c.Charge.Requests }},
	{"ahead", 0, func(c *candidate) any { return &c.Charge.Ahead }},
	{"held", 0, func(c *candidate) any { return &c.Charge.Held }},
	{"trust", 0, func(c *candidate) any { return &c.Trust }},
	{"unseen", 0, func(c *candidate) any { return &c.Unseen }},
	{"foreign", 0, func(c *candidate) any { return &c.Foreign }},
	{"wait", 0, func(c *candidate) any { return &c.Wait }},
	{"util", 0, func(c *candidate) any { return &c.Util }},
	{"stay", 0, func(c *candidate) any { return &c.Stay }},
	{"fill", 0, func(c *candidate) any { return &c.Fill }},
	{"base", 0, func(c *candidate) any { return &c.Speed.Base }},
	{"token", 0, func(c *candidate) any { return &c.Speed.Token }},
	{"square", 0, func(c *candidate) any { return &c.Speed.Square }},
	{"out", 0, func(c *candidate) any { return &c.Health.Out }},
	{"ramp", 0, func(c *candidate) any { return &c.Health.Ramp }},
	{"last", 0, func(c *candidate) any { return &c.Last }},
	{"lastCold", 0, func(c *candidate) any { return &c.LastCold }},
	{"answered", 0, func(c *candidate) any { return &c.Answered }},

	{"age", 0, func(c *candidate) any { return &c.Age }},
	{"at", 0, func(c *candidate) any { return &c.Stats.At }},
	{"every", 0, func(c *candidate) any { return &c.Stats.Every }},
	{"epoch", 0, func(c *candidate) any { return &c.Stats.Epoch }},
	{"engine", 0, func(c *candidate) any { return &c.Stats.Engine }},
	{"running", podstate.FieldRunning, func(c *candidate) any { return &c.Stats.Running }},
	{"waiting", podstate.FieldWaiting, func(c *candidate) any { return &c.Stats.Waiting }},
	{"deferred", podstate.FieldDeferred, func(c *candidate) any { return &c.Stats.Deferred }},
	{"kvUsage", podstate.FieldKVUsage, func(c *candidate) any { return &c.Stats.KVUsage }},
	{"kvPeak", podstate.FieldKVUsage, func(c *candidate) any { return &c.Stats.KVPeak }},
	{"kvTokens", podstate.FieldKVTokens, func(c *candidate) any { return &c.Stats.KVTokens }},
	{"blockTokens", podstate.FieldBlockTokens, func(c *candidate) any { return &c.Stats.BlockTokens }},
	{"maxRunning", podstate.FieldMaxRunning, func(c *candidate) any { return &c.Stats.MaxRunning }},
	{"maxModelLen", podstate.FieldMaxModelLen, func(c *candidate) any { return &c.Stats.MaxModelLen }},
	{"load", podstate.FieldLoad, func(c *candidate) any { return &c.Stats.Load }},
	{"loadAt", podstate.FieldLoad, func(c *candidate) any { return &c.Stats.LoadAt }},
	{"prefillTokens", podstate.FieldPrefillTokens, func(c *candidate) any { return &c.Stats.PrefillTokens }},
	{"models", podstate.FieldModels, func(c *candidate) any { return &c.Stats.Models }},
	{"loadable", podstate.FieldModels, func(c *candidate) any { return (*adapters)(&c.Stats.Loadable) }},
	{"adapters", podstate.FieldAdapters, func(c *candidate) any { return (*adapters)(&c.Stats.Adapters) }},
	{"maxAdapters", podstate.FieldMaxAdapters, func(c *candidate) any { return &c.Stats.MaxAdapters }},
	{"prefixQueries", podstate.FieldPrefixHits, func(c *candidate) any { return &c.Stats.PrefixQueries }},
	{"prefixHits", podstate.FieldPrefixHits, func(c *candidate) any { return &c.Stats.PrefixHits }},
	{"promptTokens", podstate.FieldPromptTokens, func(c *candidate) any { return &c.Stats.PromptTokens }},
	{"generationTokens", podstate.FieldGenerationTokens, func(c *candidate) any { return &c.Stats.GenerationTokens }},
	{"preemptions", podstate.FieldPreemptions, func(c *candidate) any { return &c.Stats.Preemptions }},
	{"asleep", podstate.FieldAsleep, func(c *candidate) any { return &c.Stats.Asleep }},
}

// adapters are names of LoRA adapters. What an adapter is called may tell whom
// it is for, so they can be hidden.
type adapters []string
