package podstate

import (
	"math"
	"testing"
	"time"
)

// slots is a server that runs so many requests at once, for a second each, and
// is scraped ten times a second.
type slots struct {
	*lane
	limit    int
	requests []*Reservation // the oldest first; the first ones run
	ends     []time.Time
	others   int // requests of others that wait
	scrapes  int
}

func (s *slots) tick() {
	s.after(100 * time.Millisecond)
	for len(s.ends) > 0 && !s.ends[0].After(s.now) {
		s.requests[0].Release(s.now)
		s.requests, s.ends = s.requests[1:], s.ends[1:]
		s.start()
	}
	s.scrapes++
	s.table.SetStats(s.pod, &Stats{At: s.now, Every: 100 * time.Millisecond,
		Known:   FieldRunning | FieldWaiting | FieldGenerationTokens | FieldKVUsage,
		Running: float64(len(s.ends)), Waiting: float64(len(s.requests) - len(s.ends) + s.others), GenerationTokens: float64(s.scrapes),
	}, s.table.BeginScrape(s.pod))
}

func (s *slots) start() {
	for n := len(s.ends); n < min(s.limit, len(s.requests)); n++ {
		s.requests[n].FirstToken(s.now)
		s.requests[n].Succeeded(s.now)
		s.ends = append(s.ends, s.now.Add(time.Second))
	}
}

// keep has so many requests there at every time.
func (s *slots) keep(n int, d time.Duration) {
	for range d / (100 * time.Millisecond) {
		s.tick()
		if len(s.requests) < n { // one at a time, or all would end together
			s.requests = append(s.requests, s.send(10))
			s.start()
		}
	}
}

func (s *slots) wantTurn(rule string, seconds float64) {
	s.t.Helper()
	if got := s.table.Snapshot(s.now)[0].Wait; math.Abs(got-seconds) > 0.15*seconds+0.05 {
		s.t.Errorf("%s: got a wait of %.3f s, want %.3f", rule, got, seconds)
	}
}

func TestFullBatch(t *testing.T) {
	for name, watched := range map[string]bool{"first tokens are seen": true, "nothing is seen": false} {
		t.Run(name, func(t *testing.T) {
			s := &slots{lane: newLane(t, watched), limit: 4}
			s.keep(4, 5*time.Second)
			s.wantTurn("as many as fit: nobody waits", 0)
			s.keep(8, 10*time.Second)
			// Of 8 requests 4 run, and four end each second.
			if got, want := s.pod.batch.limit, 4.0; got != want {
				t.Fatalf("limit %v was learned of a batch of %v", got, want)
			}
			s.wantTurn("a new one waits until five have ended", 5.0/4)
			s.limit = 6
			s.keep(8, 5*time.Second)
			if got, want := s.pod.batch.limit, 6.0; got != want {
				t.Errorf("limit %v, want %v: more run now", got, want)
			}
		})
	}
}

func TestWhatOthersWaitForIsNoLimit(t *testing.T) {
	s := &slots{lane: newLane(t, true), limit: 100, others: 3}
	s.keep(8, 10*time.Second)
	if got := s.pod.batch.limit; got != 0 {
		t.Errorf("limit %v, though none of ours waits", got)
	}
}

func TestPodsOfAClassShareALimit(t *testing.T) {
	s := &slots{lane: newLane(t, true), limit: 4}
	s.keep(8, 10*time.Second)
	both, _ := s.table.SetPods(specs(2))
	s.table.SetStats(both[0], &Stats{At: s.now, Known: FieldRunning | FieldWaiting}, 0)
	if got := both[0].batch.limit; got != 4 {
		t.Errorf("a new pod's limit is %v, want that of its class, 4", got)
	}
	s.table.SetStats(both[0], &Stats{At: s.now.Add(time.Second), Known: FieldRunning | FieldWaiting | FieldMaxRunning, MaxRunning: 16}, 0)
	if got := both[0].batch.limit; got != 16 {
		t.Errorf("limit %v of a pod that says 16", got)
	}
}

// While prompts are what others wait for, the number of those that run wanders.
func TestOnlyAConstantNumberIsALimit(t *testing.T) {
	for name, tt := range map[string]struct {
		running func(i int) int
		want    float64
	}{
		"as many, or one less between an end and the next start": {func(i int) int { return 8 - i%2 }, 8},
		"growing":              {func(i int) int { return 8 + i }, 0},
		"growing now and then": {func(i int) int { return 8 + i/5 }, 0},
		"shrinking":            {func(i int) int { return 100 - i }, 0},
		"up and down":          {func(i int) int { return 8 + []int{0, 1, 2, 1, 0, -1, -2, -1}[i%8] }, 0},
	} {
		t.Run(name, func(t *testing.T) {
			l := newLane(t, true)
			l.send(10)
			for i := range 40 {
				l.after(time.Second)
				l.pod.batch.crowd.ended = true
				l.table.SetStats(l.pod, &Stats{At: l.now, Known: FieldRunning | FieldWaiting, Running: float64(tt.running(i)), Waiting: 5}, 0)
			}
			if got := l.pod.batch.limit; got != tt.want {
				t.Errorf("limit %v, want %v", got, tt.want)
			}
		})
	}
}

// Long prompts with short answers keep the number of those that run constant,
// too, but then the pod is busy with prompts all the time.
func TestLongPromptsShowNoLimit(t *testing.T) {
	for name, tt := range map[string]struct {
		tokens int
		want   float64
	}{
		"prompts take no time":       {10, 2},
		"prompts take half the time": {500, 0},
		"prompts take all the time":  {1000, 0},
	} {
		for how, watched := range map[string]bool{"first tokens are seen": true, "nothing is seen": false} {
			t.Run(name+", "+how, func(t *testing.T) {
				l := newLane(t, watched)
				var open []*Reservation
				for range 6 {
					open = append(open, l.send(tt.tokens))
				}
				for i := range 40 { // each second one ends, and another one's prompt
					l.after(time.Second)
					open[0].Release(l.now)
					open = append(open[1:], l.send(tt.tokens))
					if watched {
						open[1].FirstToken(l.now)
					}
					l.table.SetStats(l.pod, &Stats{At: l.now, Known: FieldRunning | FieldWaiting | FieldGenerationTokens,
						Running: 2, Waiting: 4, GenerationTokens: float64(i)}, l.table.BeginScrape(l.pod))
				}
				if got := l.pod.batch.limit; got != tt.want {
					t.Errorf("limit %v, want %v", got, tt.want)
				}
			})
		}
	}
}

// Engines that do not count a prompt as running until it is processed, and those
// that stand still, say that none runs while some wait.
func TestALimitStaysWhileNoneRuns(t *testing.T) {
	s := &slots{lane: newLane(t, true), limit: 4}
	s.keep(8, 10*time.Second)
	for range 20 {
		s.after(time.Second)
		s.pod.batch.crowd.ended = true
		s.table.SetStats(s.pod, &Stats{At: s.now, Known: FieldRunning | FieldWaiting, Waiting: 4}, s.table.BeginScrape(s.pod))
	}
	if b, c := s.pod.batch.limit, s.pod.speed.class.limit; b != 4 || c != 4 {
		t.Errorf("limit %v, of the class %v; 4 were learned", b, c)
	}
}

// The first answers that a pod gives may be short, and those that fill its batch
// later so long that none of them ends.
func TestLongAnswersInAFullBatch(t *testing.T) {
	for name, watched := range map[string]bool{"first tokens are seen": true, "nothing is seen": false} {
		t.Run(name, func(t *testing.T) {
			l := newLane(t, watched)
			scrape := func(running float64) {
				l.table.SetStats(l.pod, &Stats{At: l.now, Known: FieldMaxRunning | FieldRunning | FieldWaiting, MaxRunning: 4,
					Running: running}, l.table.BeginScrape(l.pod))
			}
			scrape(0)
			run := func() *Reservation {
				r := l.send(10)
				l.after(10 * time.Millisecond)
				if watched {
					r.FirstToken(l.now)
				}
				return r
			}
			for range 50 {
				r := run()
				l.after(50 * time.Millisecond)
				r.Release(l.now)
			}
			var full []*Reservation
			for range 4 {
				full = append(full, run())
			}
			wait := func() float64 { return l.table.Snapshot(l.now)[0].Wait }
			if got := wait(); got > 0.1 {
				t.Errorf("a full batch of young requests makes one wait %.3f s; the usual stay is 0.05 s, and there are four", got)
			}
			l.after(20 * time.Second)
			scrape(4)
			if got := wait(); got < 2 || got > 5 {
				t.Errorf("four that have run for 20 s make one wait %.3f s, want about 20/2/4", got)
			}
			for _, r := range full {
				r.Release(l.now)
			}
			b := &l.pod.batch
			if b.running != 0 || b.begun != 0 {
				t.Errorf("when all have ended, %d run since %v", b.running, b.begun)
			}
		})
	}
}
