package scorers

import (
	"net/netip"
	"testing"
	"time"

	"github.com/warmpath/warmpath/podstate"
)

// fleet is a pool with a clock. Its pods process prompts one after the other and
// answers beside each other, are scraped once a second, and misbehave as they are
// told.
type fleet struct {
	t       *testing.T
	table   *podstate.Table
	profile *Profile
	now     time.Time
	servers []*server
	specs   []podstate.Spec
	seed    uint64
	rung    podstate.Rung // of the last request
}

// server is one pod.
type server struct {
	pod     *podstate.Pod
	prefill time.Duration // that one prompt takes
	decode  time.Duration // from the first token to the end
	busy    time.Time     // until when it processes prompts
	open    []*sent
	got     int // requests since the last look
	failed  int // that were not answered well
	tokens  float64
	scraped time.Time

	fails  bool                    // each new request, at once
	hangs  bool                    // nothing goes on
	mute   bool                    // scrapes get no answer
	report func(s *podstate.Stats) // changes what it says
}

type sent struct {
	r           *podstate.Reservation
	first, last time.Time // tokens
	begun       bool
}

const tick = 10 * time.Millisecond

func newFleet(t *testing.T, profile string, n int) *fleet {
	p, err := NewProfile(profile, nil)
	if err != nil {
		t.Fatal(err)
	}
	f := &fleet{t: t, table: podstate.NewTable(), profile: p, now: time.Unix(1e9, 0)}
	f.join(n)
	return f
}

// join adds pods.
func (f *fleet) join(n int) {
	for range n {
		addr := netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, 0, byte(len(f.specs) + 1)}), 8000)
		f.specs = append(f.specs, podstate.Spec{Name: addr.String(), Addr: addr})
	}
	added, _ := f.table.SetPods(f.specs)
	for _, p := range added {
		f.servers = append(f.servers, &server{pod: p, prefill: 20 * time.Millisecond, decode: 100 * time.Millisecond})
	}
}

// stats is what the pod says about itself.
func (s *server) stats(now time.Time) *podstate.Stats {
	st := &podstate.Stats{
		At: now, Every: time.Second,
		Known: podstate.FieldRunning | podstate.FieldWaiting | podstate.FieldKVUsage | podstate.FieldKVTokens |
			podstate.FieldPromptTokens | podstate.FieldGenerationTokens,
		KVTokens: 100_000, PromptTokens: s.tokens, GenerationTokens: s.tokens / 10,
	}
	if !s.hangs {
		for _, q := range s.open {
			if q.begun {
				st.Running++
			} else {
				st.Waiting++
			}
		}
	}
	st.KVUsage = (st.Running + st.Waiting) / 100
	if s.report != nil {
		s.report(st)
	}
	return st
}

// pass lets time go by.
func (f *fleet) pass(d time.Duration) {
	for end := f.now.Add(d); f.now.Before(end); {
		f.now = f.now.Add(tick)
		for _, s := range f.servers {
			s.turn(f)
		}
	}
}

func (s *server) turn(f *fleet) {
	if s.hangs {
		for _, q := range s.open {
			q.first, q.last = q.first.Add(tick), q.last.Add(tick)
		}
		s.busy = s.busy.Add(tick)
	}
	left := s.open[:0]
	for _, q := range s.open {
		if !q.begun && !f.now.Before(q.first) {
			q.begun = true
			s.tokens += 1000
			q.r.FirstToken(f.now)
			q.r.Succeeded(f.now)
		}
		if f.now.Before(q.last) {
			left = append(left, q)
			continue
		}
		q.r.Release(f.now)
	}
	s.open = left
	if f.now.Sub(s.scraped) >= time.Second && !s.mute {
		s.scraped = f.now
		f.table.SetStats(s.pod, s.stats(f.now), f.table.BeginScrape(s.pod))
	}
}

// ask sends one request and returns the server that got it.
func (f *fleet) ask(req Request) *server {
	f.t.Helper()
	f.seed += 0x9e3779b97f4a7c15
	req.Seed, req.Output = f.seed, 100
	req.Tokens = max(req.Tokens, 1000)
	if req.Key == 0 {
		req.Key = req.Seed
	}
	ask := podstate.Ask{Now: f.now, Tokens: req.Tokens, Output: req.Output, Adapter: req.Adapter}
	r, err := f.table.PickAndReserve(&ask, func(c []podstate.Candidate) (int, int) { return f.profile.Choose(&req, c) })
	if err != nil {
		f.t.Fatalf("at rung %v: %v (%s); a pool with pods must never stop", req.Rung, err, req.Refusal)
	}
	f.rung = req.Rung
	for _, s := range f.servers {
		if s.pod != r.Pod() {
			continue
		}
		s.got++
		if s.fails {
			s.failed++
			r.Failed(f.now.Add(tick))
			r.Release(f.now.Add(tick))
		} else {
			if s.busy.Before(f.now) {
				s.busy = f.now
			}
			s.busy = s.busy.Add(s.prefill)
			s.open = append(s.open, &sent{r: r, first: s.busy, last: s.busy.Add(s.decode)})
		}
		return s
	}
	f.t.Fatal("a pod that nobody knows was picked")
	return nil
}

// load sends so many requests a second.
func (f *fleet) load(d time.Duration, perSecond int) {
	f.t.Helper()
	for end := f.now.Add(d); f.now.Before(end); {
		f.ask(Request{})
		f.pass(time.Second / time.Duration(perSecond))
	}
}

// giveUp ends the oldest requests of a pod that hangs, as clients do.
func (f *fleet) giveUp(s *server) {
	for _, q := range s.open {
		q.r.Release(f.now)
	}
	s.failed += len(s.open)
	s.open = nil
}

// shares are the parts of the requests that each pod has got since the last
// call.
func (f *fleet) shares() (share []float64) {
	total := 0
	for _, s := range f.servers {
		total += s.got
	}
	for _, s := range f.servers {
		share = append(share, float64(s.got)/float64(max(1, total)))
		s.got = 0
	}
	return share
}

func (f *fleet) candidate(s *server) podstate.Candidate {
	for _, c := range f.table.Snapshot(f.now) {
		if c.Pod == s.pod {
			return c
		}
	}
	f.t.Fatal("the pod is no member")
	return podstate.Candidate{}
}
