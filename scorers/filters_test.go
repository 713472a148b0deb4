package scorers

import (
	"slices"
	"testing"

	"github.com/warmpath/warmpath/podstate"
)

func TestFilters(t *testing.T) {
	type pods = []podstate.Candidate
	sleeps := reported(podstate.FieldAsleep, podstate.Stats{Asleep: true})
	awake := reported(podstate.FieldAsleep, podstate.Stats{})
	out := podstate.Candidate{Health: podstate.Health{Out: podstate.OutEjected}}
	ok := podstate.Candidate{}
	resident, free, full := adapter(podstate.AdapterResident), adapter(podstate.AdapterFree), adapter(podstate.AdapterFull)
	crowded := resident
	crowded.Charge.Requests = 20
	gone := adapter(podstate.AdapterMissing)
	new := waits(0, 0)
	short := reported(podstate.FieldMaxModelLen, podstate.Stats{MaxModelLen: 4096})
	small := reported(podstate.FieldKVTokens, podstate.Stats{KVTokens: 4096})
	old := aged(waits(0, 0), 60)

	tests := []struct {
		name    string
		subset  []string
		pods    pods
		want    []int // pods that may take the request
		refusal string
	}{
		{"without pods", nil, nil, nil, RefusalNoPod},
		{"without a subset all may", nil, pods{ok, ok}, []int{0, 1}, ""},
		{"an address in the subset", []string{"10.0.0.2:8000"}, pods{ok, ok, ok}, []int{1}, ""},
		{"an IP in the subset", []string{"10.0.0.3", "10.0.0.1"}, pods{ok, ok, ok}, []int{0, 2}, ""},
		{"an IPv4 address in IPv6 form", []string{"::ffff:10.0.0.2", "[::ffff:10.0.0.3]:8000"}, pods{ok, ok, ok}, []int{1, 2}, ""},
		{"another port", []string{"10.0.0.1:8001"}, pods{ok}, nil, RefusalSubset},
		{"nonsense in the subset", []string{"", "x", "10.0.0.1:"}, pods{ok}, nil, RefusalSubset},
		{"an empty subset", []string{}, pods{ok}, nil, RefusalSubset},
		{"pods that sleep never", nil, pods{sleeps, awake, ok}, []int{1, 2}, ""},
		{"all pods sleep", nil, pods{sleeps, sleeps}, nil, RefusalNoPod},
		{"sick pods if there are others", nil, pods{out, ok}, []int{1}, ""},
		{"sick pods if there are no others", nil, pods{out, out}, []int{0, 1}, ""},
		{"sick pods of a subset without others", []string{"10.0.0.1"}, pods{out, ok}, []int{0}, ""},
		{"full adapter slots if another is free", nil, pods{full, free, resident}, []int{1, 2}, ""},
		{"full adapter slots if another holds the adapter", nil, pods{full, full, resident}, []int{2}, ""},
		{"full adapter slots if a crowded pod alone holds the adapter", nil, pods{full, full, crowded}, []int{0, 1, 2}, ""},
		{"pods without the adapter if another has it", nil, pods{gone, full}, []int{1}, ""},
		{"pods that slept when they fell silent", nil, pods{aged(sleeps, 60), sleeps}, []int{0}, ""},
		{"pods whose context is too short for the prompt", nil, pods{short, ok}, []int{1}, ""},
		{"pods whose cache is too small for the prompt", nil, pods{small, ok}, []int{1}, ""},
		{"no pod that is long enough", nil, pods{short, small}, []int{0, 1}, ""},
		{"old stats if most are new", nil, pods{new, old, new}, []int{0, 2}, ""},
		{"old stats if most are old", nil, pods{new, old, old}, []int{0, 1, 2}, ""},
		{"never scraped", nil, pods{new, new, unreported()}, []int{0, 1, 2}, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			p, err := NewProfile("hyperpod", nil)
			if err != nil {
				t.Fatal(err)
			}
			cands := named(slices.Clone(tt.pods)...)
			req := &Request{Subset: tt.subset, Tokens: 10_000}
			before := slices.Clone(cands)
			var got []int
			for i, c := range p.filter(req, cands) {
				got = append(got, c.Pod.Slot)
				if len(p.index) > 0 && cands[p.index[i]] != c {
					t.Errorf("place %d of all is not pod %d", p.index[i], c.Pod.Slot)
				}
			}
			if !slices.Equal(cands, before) {
				t.Error("the pods were changed")
			}
			if !slices.Equal(got, tt.want) || req.Refusal != tt.refusal {
				t.Errorf("got %v, %q, want %v, %q", got, req.Refusal, tt.want, tt.refusal)
			}
		})
	}
}

func TestRampingPodGetsItsShare(t *testing.T) {
	running := func(n int, ramp float64) podstate.Candidate {
		return podstate.Candidate{Charge: podstate.Charge{Requests: n}, Health: podstate.Health{Ramp: ramp}}
	}
	tests := []struct {
		name   string
		ramp   float64
		mine   int
		others int
		out    bool
	}{
		{"the first request is a trial", 0.1, 0, 0, false},
		{"one at a time while the others are idle", 0.1, 1, 0, true},
		{"a fifth of what the others run", 0.2, 3, 20, false},
		{"and not more", 0.2, 4, 20, true},
		{"no bound at the end of the ramp", 1, 40, 20, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			pods := named(running(tt.mine, tt.ramp), running(tt.others, 1), running(tt.others, 1))
			out := make([]bool, len(pods))
			n := ramping{}.Filter(&Request{}, pods, out)
			if out[0] != tt.out || out[1] || out[2] || n != count(tt.out) {
				t.Errorf("got %v, want %v for the first", out, tt.out)
			}
		})
	}
}
