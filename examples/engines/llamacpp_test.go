package engines_test

import (
	"context"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
)

func TestLlamaCpp(t *testing.T) {
	f := newFleet(t, 2)
	for _, c := range []struct {
		rule string
		test func(*testing.T, *fleet)
	}{
		{"every value is read", everyValueIsRead},
		{"inspect explains a server", inspectExplains},
		{"usage teaches the length of tokens", usageTeaches},
		{"streams pass with usage and timings", streamsPass},
		{"a prompt that is too long gets the engine's answer", tooLong},
		{"an abort gives the reservation back", abortReleases},
		{"a prompt goes where its prefix is cached", prefixStays},
		{"what every API says of caches is understood", everyAPI},
		{"what a stream says of caches is understood", streamsTell},
		{"a dead server is left out and comes back", deathAndReturn},
	} {
		t.Run(c.rule, func(t *testing.T) { c.test(t, f) })
	}
}

func everyValueIsRead(t *testing.T, f *fleet) {
	ask(t, f.Warmpath, chat("any", "the value of", 7, false))
	eventually(t, "the request is in what the servers report", func() bool {
		n := 0.0
		for _, p := range pods(t, f.Admin) {
			n += p.number(t, "generationTokens")
		}
		return n == 7
	})
	for _, p := range pods(t, f.Admin) {
		if p.Engine != "llamacpp" || p.Out != "" || p.Epoch != 0 {
			t.Errorf("%s: engine %q, out %q, epoch %d", p.Name, p.Engine, p.Out, p.Epoch)
		}
		for name, want := range map[string]float64{
			"running": 0, "waiting": 0, "load": 0, "prefillTokens": 0, // of /slots
			"maxRunning": 4, "maxModelLen": 4096, "prefixHits": 0,
		} {
			if got := p.number(t, name); got != want {
				t.Errorf("%s reports %s %v, want %v", p.Name, name, got, want)
			}
		}
		for _, name := range []string{"kvUsage", "adapters", "asleep"} {
			if v, ok := p.Reported[name]; ok {
				t.Errorf("%s reports %s %v, which llama.cpp does not tell", p.Name, name, v)
			}
		}
	}
}

func inspectExplains(t *testing.T, f *fleet) {
	out, err := exec.CommandContext(t.Context(), warmpath, "inspect", "http://"+f.servers[0].Addr).Output()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	text := strings.Join(strings.Fields(string(out)), " ")
	for _, want := range []string{
		"http://" + f.servers[0].Addr + " is llamacpp",
		"asked /metrics for all series",
		"running 0 requests /slots",
		"waiting 0 requests llamacpp:requests_deferred",
		"load 0 requests at this instant /slots",
		"maxRunning 4 requests /slots",
		"maxModelLen 4096 tokens /slots",
		"kvUsage a pod that is about to preempt looks like any other",
		"note: response headers mean slot assigned",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("inspect does not say %q:\n%s", want, out)
		}
	}
	if live := get(t, "http://"+f.Admin+"/pods/server-0/inspect"); !strings.Contains(live, "is llamacpp") {
		t.Errorf("admin's inspection of the same pod:\n%s", live)
	}
}

// Until a response says otherwise, a token is taken for four bytes of text.
func usageTeaches(t *testing.T, f *fleet) {
	told := func() float64 { return metric(t, f.Admin, "warmpath_extproc_bytes_per_token", `pool="demo"`) }
	before := told()
	for range 5 { // the answer to the first one may have been too small to teach
		a := ask(t, f.Warmpath, chat("any", digits(800), 5, false))
		if a.Usage.Output != 5 || a.Usage.Prompt < 800 || a.Usage.Prompt > 830 || len(a.Choices) != 1 || a.Choices[0].Message.Content == "" {
			t.Fatalf("the answer is %+v", a)
		}
	}
	eventually(t, fmt.Sprintf("prompts of one byte a token have changed the bytes a token from %.2f to about 1", before), func() bool {
		return math.Abs(told()-1) < 0.1
	})
}

func streamsPass(t *testing.T, f *fleet) {
	seen := func(what string) float64 {
		return metric(t, f.Admin, "warmpath_extproc_first_token_seconds_"+what, `pool="demo"`)
	}
	count, sum := seen("count"), seen("sum")
	body := stream(t.Context(), t, f.Warmpath, chat("any", digits(2500), 40, true))
	var text strings.Builder
	var last answer
	n, done := 0, false
	err := events(body, func(data string) bool {
		if done = data == "[DONE]"; done {
			return true
		}
		last = parse(t, data)
		for _, c := range last.Choices {
			text.WriteString(c.Delta.Content)
		}
		n++
		return true
	})
	switch {
	case err != nil:
		t.Error(err)
	case !done:
		t.Error("the stream has no [DONE] at its end")
	case n < 40 || len(strings.Fields(text.String())) != 40:
		t.Errorf("%d events with the text %q; want the 40 words that were asked for", n, &text)
	case last.Usage.Output != 40 || last.Timings.Generated != 40 || last.Usage.Prompt != last.Timings.Processed+last.Timings.Cached:
		t.Errorf("the last event says %+v", last)
	}
	eventually(t, "warmpath has seen the first token", func() bool { return seen("count") > count })
	// The headers come when the prompt gets a slot, before it is processed.
	if took, least := seen("sum")-sum, last.Timings.PromptMS/1000; least == 0 || took < least {
		t.Errorf("warmpath takes %.3f s for the time to the first token, though the engine needed %.3f s for the prompt", took, least)
	}
}

// Such a prompt fits nowhere, which is for the engine to say; and it says
// nothing about the engine's health.
func tooLong(t *testing.T, f *fleet) {
	for range 4 {
		status, body := try(t, "http://"+f.Warmpath+"/v1/chat/completions", chat("any", digits(5000), 5, false))
		if status != http.StatusBadRequest || !strings.Contains(string(body), "exceed_context_size_error") {
			t.Fatalf("status %d: %s", status, body)
		}
	}
	eventually(t, "nothing is under way", func() bool { return inflight(t, f.Admin) == 0 })
	for _, p := range pods(t, f.Admin) {
		if p.Out != "" || p.Charge.Ahead != 0 {
			t.Errorf("after that, %s is out for %q and charged with %v tokens", p.Name, p.Out, p.Charge.Ahead)
		}
	}
}

func abortReleases(t *testing.T, f *fleet) {
	const tokens = 3900
	generated := func() (n float64) {
		for _, s := range f.servers {
			n += metric(t, s.Addr, "llamacpp:tokens_predicted_total")
		}
		return n
	}
	running := func() (n float64) {
		for _, s := range f.servers {
			n += metric(t, s.Addr, "llamacpp:requests_processing")
		}
		return n
	}
	before := generated()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	body := stream(ctx, t, f.Warmpath, chat("any", "the value of", tokens, true))
	n := 0
	if err := events(body, func(string) bool { n++; return n < 5 }); err != nil {
		t.Fatal(err)
	}
	if inflight(t, f.Admin) != 1 || running() != 1 {
		t.Fatalf("in the middle of a stream, warmpath counts %d requests and the servers %v", inflight(t, f.Admin), running())
	}
	cancel()
	released := eventually(t, "warmpath counts no request", func() bool { return inflight(t, f.Admin) == 0 })
	freed := eventually(t, "no server works", func() bool { return running() == 0 })
	if n := generated() - before; n > tokens-100 {
		t.Errorf("%v of %v tokens were generated, so that the request has ended by itself", n, tokens)
	}
	t.Logf("after an abort, warmpath's reservation was given back within %v, the server's slot within %v more", released, freed)
}

func deathAndReturn(t *testing.T, f *fleet) {
	victim := f.servers[1]
	streams := map[string]io.Reader{} // one at each server
	for i := 0; len(streams) < 2; i++ {
		if i > 4 {
			t.Fatalf("%d streams went to one of two servers, which has four slots", i)
		}
		body := stream(t.Context(), t, f.Warmpath, chat("any", words(30+i, 3), 3000, true))
		// A slot is free as soon as one that has long been taken ends: the longer the
		// answers have run that are there, the clearer it is that one more would wait.
		n := 0
		events(body, func(data string) bool { n++; streams[parse(t, data).Model] = body; return n < 200 })
	}
	victim.Kill()
	for name, want := range map[string]bool{"server-0": true, "server-1": false} {
		done := false
		err := events(streams[name], func(data string) bool { done = data == "[DONE]"; return true })
		if (err == nil) != want || done != want {
			t.Errorf("the stream of %s: error %v, at its end: %v", name, err, done)
		}
	}
	for i := range 10 {
		if a := ask(t, f.Warmpath, chat("any", words(40+i, 300), 3, false)); a.Model != "server-0" {
			t.Errorf("the dead server has answered: %+v", a)
		}
	}
	out := ""
	eventually(t, "the dead server is out", func() bool {
		out = pods(t, f.Admin)[victim.Addr].Out
		return out != ""
	})
	if p := pods(t, f.Admin)[f.servers[0].Addr]; p.Out != "" {
		t.Errorf("the living server is out, too: %s", p.Out)
	}
	eventually(t, "no request counts as under way", func() bool { return inflight(t, f.Admin) == 0 })

	eventually(t, "nobody else has the port of the dead server", func() bool {
		l, err := net.Listen("tcp", victim.Addr)
		if err == nil {
			l.Close()
		}
		return err == nil
	})
	f.servers[1] = start(t, 1, victim.Port())
	back := eventually(t, "the server that has come back is in", func() bool {
		p := pods(t, f.Admin)[victim.Addr]
		return p.Out == "" && p.Age < 5
	})
	if p := pods(t, f.Admin)[victim.Addr]; p.Epoch == 0 {
		t.Error("a new process is taken for the old one, whose caches are gone")
	}
	n := 0
	eventually(t, "the server that has come back gets requests", func() bool {
		// More at once than the other has slots.
		var burst sync.WaitGroup
		var served atomic.Bool
		for range 6 {
			n++
			body := chat("any", words(60+n, 300), 3, false)
			burst.Go(func() {
				a, err := tell(t.Context(), f.Warmpath, body)
				if err != nil {
					t.Error(err)
				}
				if a.Model == "server-1" {
					served.Store(true)
				}
			})
		}
		burst.Wait()
		return served.Load()
	})
	t.Logf("out as %q; in %v after its restart, and it got one of the first %d requests", out, back, n)
}
