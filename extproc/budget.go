package extproc

import (
	"sync"
	"time"
)

// What it costs this process, in seconds of CPU time, to look into a response.
// The README says how that was measured.
const (
	eventCost = 15e-6 // an event, held by Envoy or only shown
	wholeCost = 20e-6 // an answer in one piece
	byteCost  = 3e-9
)

const (
	// defaultBudget reads some thousand events a second.
	defaultBudget = 0.05
	// burst is how many seconds of an unused budget are kept.
	burst = 1
	// firstStream is what a stream is expected to cost before any has been read.
	firstStream = 200 * eventCost
)

// budget is CPU time for reading responses to their end. It fills as time
// passes, and whenever something is in it, one more may be read. So, at any
// load, the share is read that the budget allows.
type budget struct {
	cores float64

	mu     sync.Mutex // guards the fields below
	left   float64    // seconds
	at     time.Time  // as of which
	stream float64    // mean cost of a stream, seconds
}

func newBudget(cores float64) *budget {
	return &budget{cores: cores, stream: firstStream}
}

// take reports whether a response may be read that costs so many seconds.
func (b *budget) take(now time.Time, cost float64) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.left = min(b.left+now.Sub(b.at).Seconds()*b.cores, burst*b.cores)
	b.at = now
	if b.left <= 0 {
		return false
	}
	b.left -= cost
	return true
}

// takeStream is take for a stream, whose cost is known when it has ended. It
// returns an advance on it, to be given to settle, or 0 if none may be read.
func (b *budget) takeStream(now time.Time) (advance float64) {
	b.mu.Lock()
	advance = b.stream
	b.mu.Unlock()
	if !b.take(now, advance) {
		return 0
	}
	return advance
}

// settle says what was spent of an advance: nothing, if it was no stream.
func (b *budget) settle(advance, spent float64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.left += advance - spent
	if spent > 0 {
		b.stream += (spent - b.stream) * 0.1
	}
}
