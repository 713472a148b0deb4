//go:build vllm && linux

package engines_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/warmpath/warmpath/examples/engines"
	"github.com/warmpath/warmpath/examples/rig"
)

// Two adapters hold the slots, a third waits until all requests of one of them
// have ended; the base model's requests pass it.
func vllmAdapters(t *testing.T, p *pool) {
	var stop [2]context.CancelFunc
	for i := range stop {
		var ctx context.Context
		ctx, stop[i] = context.WithCancel(t.Context())
		defer stop[i]()
		body := stream(ctx, t, p.Warmpath, chat(fmt.Sprintf("ad%d", i), words(10+i, 20), 6000, true))
		if err := events(body, func(string) bool { return false }); err != nil {
			t.Fatal(err)
		}
		go io.Copy(io.Discard, body)
	}
	eventually(t, "both adapters are seen in their slots", func() bool {
		pod := p.pod(t)
		resident, _ := pod.Reported["adapters"].([]any)
		return len(resident) == 2 && slices.Contains(resident, any("ad0")) && slices.Contains(resident, any("ad1")) && pod.number(t, "maxAdapters") == 2
	})
	third := make(chan error, 1)
	go func() {
		_, err := tell(t.Context(), p.Warmpath, chat("ad2", words(12, 20), 3, false))
		third <- err
	}()
	eventually(t, "the third adapter's request is seen to wait for a slot", func() bool {
		pod := p.pod(t)
		return pod.number(t, "waiting") == 1 && pod.number(t, "deferred") == 1
	})
	ask(t, p.Warmpath, chat(rig.Model, words(13, 20), 3, false))
	ask(t, p.Warmpath, chat("ad0", words(14, 20), 3, false))
	select {
	case err := <-third:
		t.Fatalf("the third adapter has got a slot in spite of two others: %v", err)
	default:
	}
	stop[0]()
	select {
	case err := <-third:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(3 * patience):
		t.Error("the third adapter gets no slot when one is free")
	}
	stop[1]()
	eventually(t, "nothing is under way", func() bool { return inflight(t, p.Admin) == 0 })
}

// The engine's gauges know of a prompt when its first chunk is processed, which
// takes seconds.
func vllmPrefill(t *testing.T, p *pool) {
	for i := range 6 { // to learn how fast they are
		var pair sync.WaitGroup
		for j := range 2 {
			body := chat(rig.Model, words(600+2*i+j, 300), 3, true)
			pair.Go(func() { firstToken(t.Context(), p.Warmpath, body) })
		}
		pair.Wait()
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	type result struct {
		model string
		took  time.Duration
		err   error
	}
	long := make(chan result, 1)
	go func() {
		begin := time.Now()
		model, err := firstToken(ctx, p.Warmpath, chat(rig.Model, words(20, 4000), 3, true))
		long <- result{model, time.Since(begin), err}
	}()
	busy := ""
	eventually(t, "the long prompt is under way", func() bool {
		for addr, pod := range pods(t, p.Admin) {
			if pod.Charge.Requests > 0 {
				busy = addr
			}
		}
		return busy != ""
	})
	n, blind, slowest := 0, 0, time.Duration(0)
	served := map[string]int{}
	for {
		select {
		case r := <-long:
			if r.err != nil {
				t.Fatal(r.err)
			}
			t.Logf("first token of the long prompt (%s) after %v; meanwhile %v answered %d short ones, the slowest in %v; at %d of them, the busy pod's gauges said that it runs nothing",
				r.model, r.took.Round(time.Millisecond), served, n, slowest.Round(time.Millisecond), blind)
			if served[r.model] > 1 || n < 5 { // the last one may begin when the long one has ended
				t.Errorf("short requests beside the long one of %s: %v", r.model, served)
			}
			return
		default:
		}
		if pods(t, p.Admin)[busy].number(t, "running") == 0 {
			blind++
		}
		start := time.Now()
		served[ask(t, p.Warmpath, chat(rig.Model, words(100+n, 30), 3, false)).Model]++
		slowest = max(slowest, time.Since(start))
		n++
	}
}

// firstToken returns who has answered, when the first token has come.
func firstToken(ctx context.Context, gateway string, body []byte) (model string, err error) {
	resp, err := send(ctx, "http://"+gateway+"/v1/chat/completions", body)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	err = events(resp.Body, func(data string) bool {
		var a answer
		err = json.Unmarshal([]byte(data), &a)
		model = a.Model
		return false
	})
	return model, err
}

// Asleep, its health says 200 and requests would hang.
func vllmSleep(t *testing.T, alone, both *pool) {
	if status, text := try(t, "http://"+alone.vllm+"/sleep?level=1", nil); status != http.StatusOK {
		t.Fatalf("/sleep: %d %s", status, text)
	}
	for _, p := range []*pool{alone, both} {
		eventually(t, "it is seen to be asleep", func() bool { return p.pod(t).Reported["asleep"] == true })
	}
	if get(t, "http://"+alone.vllm+"/health"); t.Failed() {
		t.Error("its health says something else than before")
	}
	for i := range 10 {
		if a := ask(t, both.Warmpath, chat(rig.Model, words(300+i, 30), 3, false)); a.Model != "other" {
			t.Errorf("a sleeping server has answered: %+v", a)
		}
	}
	if status, text := try(t, "http://"+alone.Warmpath+"/v1/chat/completions", chat(rig.Model, "the", 3, false)); status != http.StatusServiceUnavailable {
		t.Errorf("with nobody awake: status %d: %s", status, text)
	}
	if status, text := try(t, "http://"+alone.vllm+"/wake_up", nil); status != http.StatusOK {
		t.Fatalf("/wake_up: %d %s", status, text)
	}
	for _, p := range []*pool{alone, both} {
		eventually(t, "it is seen to be awake", func() bool { return p.pod(t).Reported["asleep"] == false })
	}
	ask(t, alone.Warmpath, chat(rig.Model, "the", 3, false))
}

// On SIGTERM it finishes what runs and answers 500 to all else, so fast that it
// looks idle: what is least loaded gets the requests, and fails them.
func vllmDrain(t *testing.T, s *engines.Server, alone, both *pool, other string) {
	all, end := context.WithTimeout(t.Context(), 5*time.Minute)
	defer end()
	body := stream(all, t, alone.Warmpath, chat(rig.Model, "the value of", 600, true))
	if err := events(body, func(string) bool { return false }); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(all)
	defer cancel()
	for i := range 2 { // the other one has something to do
		busy := stream(ctx, t, other, chat("", words(400+i, 30), 5000, true))
		go io.Copy(io.Discard, busy)
	}
	s.Terminate()
	statuses := map[int]int{}
	served := map[string]int{}
	var mu sync.Mutex
	for round := range 10 {
		var burst sync.WaitGroup
		for i := range 3 {
			body := chat(rig.Model, words(500+10*round+i, 30), 3, false)
			burst.Go(func() {
				status, text, err := post(t.Context(), "http://"+both.Warmpath+"/v1/chat/completions", body)
				if err != nil {
					t.Error(err)
				}
				var a answer
				json.Unmarshal(text, &a)
				mu.Lock()
				defer mu.Unlock()
				statuses[status]++
				served[a.Model]++
			})
		}
		burst.Wait()
	}
	cancel()
	t.Logf("while it drains: statuses %v, served by %v, out as %q", statuses, served, both.pod(t).Out)
	// Three at once may be under way before the first has failed; a probe follows
	// each second, then every two, …
	if n := statuses[http.StatusInternalServerError]; n == 0 || n > 10 || statuses[http.StatusOK] < 20 {
		t.Errorf("%v; want some failures at first, then none but probes", statuses)
	}
	if out := both.pod(t).Out; out == "" {
		t.Error("it is not left out")
	}
	done := false
	if err := events(body, func(data string) bool { done = data == "[DONE]"; return true }); err != nil || !done {
		t.Errorf("the running stream: error %v, at its end: %v", err, done)
	}
	select {
	case <-s.Done():
	case <-time.After(3 * patience):
		t.Error("it does not end when its last stream has")
	}
	eventually(t, "a closed port is seen", func() bool { return both.pod(t).Out == "down" })
}
