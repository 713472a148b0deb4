package extproc

import (
	"math"
	"strings"
	"testing"
	"time"

	"github.com/warmpath/warmpath/extproc/openai"
	"github.com/warmpath/warmpath/podstate"
)

// request scans a chat with this text.
func request(t *testing.T, text string) *openai.Request {
	t.Helper()
	r := new(openai.Request)
	if err := r.Scan(openai.Chat, []byte(`{"model":"m","messages":[{"role":"user","content":"`+text+`"}]}`)); err != nil {
		t.Fatal(err)
	}
	return r
}

func near(got, want, tolerance float64) bool { return math.Abs(got-want) <= tolerance*want }

func TestTextIsLearned(t *testing.T) {
	r := request(t, strings.Repeat("x", 6000))
	var a asked
	a.measure(r, nil, 0)
	tests := []struct {
		name string
		says func(i int) (prompt int, ask asked)
		want float64
	}{
		{"nothing said: four bytes a token", func(int) (int, asked) { return 0, a }, 4},
		{"the first response counts whole", func(i int) (int, asked) { return map[bool]int{true: 3004}[i == 0], a }, 2},
		{"what all say", func(int) (int, asked) { return 2004, a }, 3},
		{"one of ten says nonsense", func(i int) (int, asked) {
			if i%10 == 9 {
				return 100000, a
			}
			return 2004, a
		}, 3},
		{"a short prompt is mostly template", func(int) (int, asked) {
			var a asked
			a.measure(request(t, "hello"), nil, 0)
			return 60, a
		}, 4},
		{"an image has any number of tokens", func(int) (int, asked) { return 3000, asked{} }, 4},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var truth truth
			for i := range 200 {
				prompt, ask := tt.says(i)
				truth.learn(&ask, &openai.Usage{Prompt: prompt, Cached: -1}, nil)
			}
			if got := truth.now().text; !near(got, tt.want, 0.08) {
				t.Errorf("%v bytes a token, want about %v", got, tt.want)
			}
		})
	}
}

func TestOutputIsLearned(t *testing.T) {
	var truth truth
	if got := truth.now().output; got != assumedOutput {
		t.Errorf("%v before any response, want %v", got, assumedOutput)
	}
	for i := range 400 {
		truth.learn(&asked{answers: 2}, &openai.Usage{Output: 2 * (80 + i%2*40), Cached: -1}, nil)
	}
	if got := truth.now().output; !near(got, 100, 0.1) {
		t.Errorf("%v tokens an answer, want about 100", got)
	}
	truth.learn(&asked{answers: 1}, &openai.Usage{Output: 1 << 30, Cached: -1}, nil)
	if got := truth.now().output; got > 500 {
		t.Errorf("one runaway made it %v", got)
	}
}

func TestTrustInCaches(t *testing.T) {
	pods := newPool("m", firstTwo{}, podA, podB).Table.Pods()
	a, b := pods[0], pods[1]
	ask := asked{pod: a, share: 0.9}
	tests := []struct {
		name   string
		cached int // of 1,000, each time
		served *podstate.Pod
		want   float64
	}{
		{"all there", 900, a, 1},
		{"all but an unfinished block", 790, a, 1},
		{"more there than was known", 1000, a, 1},
		{"nothing there: the cache is off", 0, a, 0.02},
		{"half there", 450, a, (450. + 128) / 900},
		{"not said", -1, a, 1},
		{"another pod served", 0, b, 1},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var truth truth
			for range 100 {
				truth.learn(&ask, &openai.Usage{Prompt: 1000, Cached: tt.cached}, tt.served)
			}
			b := truth.now()
			got := b.cached(nil, []int32{500, 500}, 100, []openai.Span{{Start: 0, End: 1000}})
			if math.Abs(float64(got[0])-50*tt.want) > 1.5 || got[1] != 50 {
				t.Errorf("tokens expected in A's and B's caches are %v, want about %v and 50", got, 50*tt.want)
			}
		})
	}
	t.Run("it comes back", func(t *testing.T) {
		var truth truth
		for i := range 200 {
			cached := 0
			if i >= 100 {
				cached = 900
			}
			truth.learn(&ask, &openai.Usage{Prompt: 1000, Cached: cached}, a)
		}
		if got := truth.now().trust[a.Slot]; got < 0.95 {
			t.Errorf("trust %v after 100 good responses", got)
		}
		if expected, found := truth.cachedBy(a); !near(expected, 180_000, 0.01) || found != 90_000 {
			t.Errorf("expected %v, found %v", expected, found)
		}
	})
	t.Run("a new pod in the same slot begins anew", func(t *testing.T) {
		var truth truth
		for range 100 {
			truth.learn(&ask, &openai.Usage{Prompt: 1000, Cached: 0}, a)
		}
		next := &podstate.Pod{Slot: a.Slot}
		truth.learn(&asked{pod: next, share: 0.9}, &openai.Usage{Prompt: 1000, Cached: 900}, next)
		if got := truth.now().trust[a.Slot]; got != 1 {
			t.Errorf("trust %v, want 1", got)
		}
	})
}

func TestBudget(t *testing.T) {
	for _, tt := range []struct {
		name   string
		rate   int // streams a second
		events int // of each
	}{
		{"little load is read whole", 10, 100},
		{"much load is read in part", 1000, 100},
		{"long streams too", 100, 10_000},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b := newBudget(0.05)
			now := time.Unix(1000, 0)
			read, spent := 0, 0.0
			type open struct {
				ends    time.Time
				advance float64
			}
			var running []open
			const seconds = 400 // the first guess of a cost may be wrong for a while
			n := seconds * tt.rate
			for range n {
				now = now.Add(time.Second / time.Duration(tt.rate))
				for len(running) > 0 && !now.Before(running[0].ends) {
					cost := float64(tt.events) * eventCost
					b.settle(running[0].advance, cost)
					spent += cost
					running = running[1:]
				}
				if advance := b.takeStream(now); advance > 0 {
					read++
					running = append(running, open{now.Add(3 * time.Second), advance})
				}
			}
			if cores := spent / seconds; cores > 0.06 {
				t.Errorf("%v cores were spent of 0.05", cores)
			}
			want := min(1, 0.05/(eventCost*float64(tt.events*tt.rate)))
			if share := float64(read) / float64(n); share < want*0.7 || share > want*1.2 {
				t.Errorf("a share of %v was read, want about %v", share, want)
			}
		})
	}
	t.Run("what was no stream is given back", func(t *testing.T) {
		b := newBudget(0.05)
		now := time.Unix(1000, 0)
		for range 1000 {
			b.settle(b.takeStream(now), 0)
		}
		if b.takeStream(now) == 0 {
			t.Error("the budget is used up by nothing")
		}
	})
}
