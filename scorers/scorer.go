// Package scorers decides which pod takes a request.
//
// A Profile filters the candidates, gives each a cost, and picks the cheapest.
// Everything here is a pure function of plain values (podstate.Candidate and
// Request), so that the simulator, replay and explanation run the very code
// that the server runs. Nothing here blocks, logs or keeps its arguments.
package scorers

import (
	"github.com/warmpath/warmpath/podstate"
)

// Request is what scorers may know about a request.
type Request struct {
	Tokens  int      // prompt tokens, estimated; at least 1
	Output  int      // tokens that it may generate, estimated
	Adapter string   // LoRA adapter, or empty
	Reuse   float64  // uses a second of the longest part of the prompt that any pod has cached; 0: not known
	Key     uint64   // hash of the prompt's head: requests that share it should meet on one pod
	Subset  []string // addresses or IPs that the gateway allows; nil allows all
	Seed    uint64   // random per request; breaks ties

	// Set by Profile.Choose.
	Rung    podstate.Rung // what the choice stands on
	Refusal string        // why there is no pod
}

// Reasons why no pod may take a request, as in Request.Refusal.
const (
	RefusalNoPod  = "no pod"       // the table is empty, or all pods sleep
	RefusalSubset = "empty subset" // no pod is in Request.Subset
)

// A Scorer rates candidate pods for one request.
type Scorer interface {
	// Score writes one rating per pod into out, which is as long as pods: 1 is
	// best, 0 is worst. It runs with the table locked and for one request at a
	// time, so it must not block, allocate, log or keep its arguments.
	Score(req *Request, pods []podstate.Candidate, out []float64)
}

// A Filter rules pods out.
type Filter interface {
	// Filter sets out[i] to true if pods[i] should not take the request, and to
	// false otherwise, and returns how many are true. pods is not empty. The rules
	// of Scorer.Score apply.
	Filter(req *Request, pods []podstate.Candidate, out []bool) int
}

// A policy is what a profile minimises.
type policy interface {
	// cost writes one cost per pod into out; the lowest wins. The rules of
	// Scorer.Score apply.
	cost(req *Request, pods []podstate.Candidate, out []float64)
}
