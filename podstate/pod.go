// Package podstate holds what warmpath believes about every pod, and is the only
// place where that belief changes.
//
// Each pod has two kinds of state, with different owners:
//
//   - Stats are facts from the last scrape. A scrape replaces them whole.
//   - Charges say what this replica has sent and not yet seen finish. Only
//     PickAndReserve and the methods of Reservation change them.
//
// Stats are always older than the requests sent since, so a pick that trusted
// Stats alone would send a whole burst to one pod. PickAndReserve closes that
// gap: reading the pods, choosing one and charging it are one step.
//
// podstate imports the standard library only. Scraping, discovery and peering
// import podstate, never the reverse.
package podstate

import (
	"net/netip"
	"time"
)

// Spec is what discovery says about one pod. Two specs with the same Name, Addr
// and UID are the same pod; any other difference is a new pod.
type Spec struct {
	Name   string
	Addr   netip.AddrPort // where it serves; String gives the form that Envoy expects, IPv6 in brackets
	UID    string         // changes when the pod is replaced under its old name; may be empty
	Labels map[string]string
}

type identity struct {
	name, uid string
	addr      netip.AddrPort
}

func (s *Spec) identity() identity { return identity{s.Name, s.UID, s.Addr} }

// Pod is one model server of a Table. It must not be copied.
type Pod struct {
	// Immutable.
	Slot int // dense number of the pod in its Table; reused after the pod has left
	Spec Spec
	Addr string // Spec.Addr as text, as Envoy wants it

	// Guarded by Table.mu. What picks read of it is kept in a row, so whoever
	// changes anything here calls Table.touchLocked.
	index    int // in Table.pods
	stats    *Stats
	charge   Charge
	sent     uint64  // requests ever reserved; Stats.sent is its value when their scrape began
	last     uint64  // order of its last request among all of the table; 0: none yet
	lastCold uint64  // the same of the last one of which no pod had anything cached
	util     float64 // seconds of prompts a second, moving average as of utilAt
	utilAt   time.Time
	batch    batch
	mean     work // of its prompts, moving average
	speed    podSpeed
	others   others
	answered bool // some request was answered well
	evidence evidence
	health   health
	queue    queue

	life     life
	adapters adapters
	busy     busy
	counted  *Stats
	joined   bool // it came to a table that had pods already
	departed bool // no longer a member; its reservations may still be open
}

// Charge is the sum of what was sent to a pod and has not ended.
type Charge struct {
	Requests int     // reserved and not released
	Ahead    float64 // uncached prompt tokens that are not known to be processed
	Held     float64 // tokens of KV cache that the requests are expected to hold
}

// Field names one value of Stats.
type Field uint32

// The values that Stats may hold; see the struct for their meaning.
const (
	FieldRunning Field = 1 << iota
	FieldWaiting
	FieldDeferred
	FieldKVUsage
	FieldKVTokens
	FieldBlockTokens
	FieldMaxRunning
	FieldMaxModelLen
	FieldAdapters
	FieldMaxAdapters
	FieldLoad
	FieldPrefixHits
	FieldPromptTokens
	FieldGenerationTokens
	FieldPreemptions
	FieldAsleep
	FieldPrefillTokens
	FieldModels
)

// Stats are facts that a pod reported about itself. A value is immutable once
// it has been given to Table.SetStats. A field that is not in Known was not
// reported and must not be read as zero.
type Stats struct {
	Known Field

	// What a pick may read of every pod stands together.
	Asleep      bool          // the server is up, but its weights are unloaded: requests hang
	Every       time.Duration // pause until the next scrape: an age up to it is ordinary
	KVTokens    int           // capacity of the KV cache, tokens
	MaxModelLen int           // longest prompt plus output, tokens
	KVUsage     float64       // share of the KV cache in use, 0 to 1
	Running     float64       // requests in the batch
	Waiting     float64       // requests that wait to enter it, Deferred included
	Deferred    float64       // those of them that wait for an adapter slot only

	At     time.Time // when the scrape that read them began
	Epoch  int       // grows when the pod's counters start again, and with them its caches
	Engine string    // name of the model server, as in scrape's engine table

	KVPeak      float64 // KVUsage of the fullest data-parallel rank; known with KVUsage
	BlockTokens int     // tokens in one block of the prefix cache
	MaxRunning  int     // largest batch

	Load          float64   // running and waiting at this instant, from a load endpoint
	LoadAt        time.Time // when that was so: a server inside a long step repeats what it said before
	PrefillTokens float64   // prompt tokens that are not cached and not processed yet

	Models      []string // names of the models that it serves, without adapters
	Loadable    []string // LoRA adapters that it can be asked for; known with Models
	Adapters    []string // LoRA adapters that hold a slot
	MaxAdapters int      // LoRA slots

	// Counters since the pod started. The two of the prefix cache go together.
	PrefixQueries, PrefixHits      float64 // prompt tokens looked up, and found
	PromptTokens, GenerationTokens float64
	Preemptions                    float64

	sent uint64 // set by Table.SetStats
}

// Has reports whether all fields in f were reported.
func (s *Stats) Has(f Field) bool { return s.Known&f == f }

// queued is how many requests wait that need no adapter slot.
func (s *Stats) queued() float64 {
	if s.Has(FieldDeferred) {
		return s.Waiting - s.Deferred
	}
	return s.Waiting
}

// AdapterState says what it takes for a pod to run a request's adapter.
type AdapterState uint8

// From best to worst.
const (
	AdapterNone     AdapterState = iota // the request wants no adapter
	AdapterResident                     // it holds a slot
	AdapterFree                         // a slot is free, or it is not known that none is
	AdapterFull                         // other adapters are in use in all slots
	AdapterMissing                      // the pod does not list it, others do
)

// Candidate is one pod as one pick sees it: plain values, read once, so that
// every scorer sees the same facts and a decision can be replayed from them.
//
// The order of the fields is for the cache: picks by turns on several cores hand
// each other what they write, so that stands together, 64 bytes.
type Candidate struct {
	Pod         *Pod
	Stats       *Stats  // never nil; its Known is 0 before the first scrape
	Age         float64 // seconds since the scrape that read Stats began; +Inf before the first
	Foreign     float64 // requests that Stats show and Charge does not: of other replicas, or older
	Wait        float64 // seconds until it can begin with one more prompt, predicted
	Util        float64 // seconds of prompts that it was sent a second, moving average
	Cached      int     // tokens of this request's prompt expected in the pod's prefix cache
	AdapterWait float64 // seconds until this request's adapter has a slot, predicted

	Speed     Speed
	Charge    Charge  // what this replica has sent there and not seen finish
	Trust     float64 // how far the gauges of Stats can be believed, 1 to 0; its fixed values always can
	Retention float64 // seconds that its prefix cache keeps what nobody uses; 0: not known
	Fill      float64 // share of the KV cache in use once what waits there has begun; 0: not known

	Health   Health
	Stay     float64      // seconds that a request runs after its first token: a moving average, or half the mean age of those that run, if that is more
	Unseen   int          // requests of Charge that Stats cannot include
	Last     uint64       // order of its last request among all of the table; 0: none yet
	LastCold uint64       // the same of the last one of which no pod had anything cached
	Adapter  AdapterState // of this request
	Answered bool         // some request of this replica was answered well
}

// fresh reports whether the stats are of use to correct a prediction.
func (c *Candidate) fresh() bool {
	return c.Stats.Has(FieldWaiting) && c.Trust > 0
}

// noStats stands for a pod that was never scraped.
var noStats = &Stats{}
