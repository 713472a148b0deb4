package sim

import (
	"context"
	"errors"
	"io"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/warmpath/warmpath/podstate"
	"github.com/warmpath/warmpath/scorers"
)

func TestMisuseIsNamedWithItsLimit(t *testing.T) {
	for _, tt := range []struct {
		args string
		says string
	}{
		{"--scenario Z", `unknown scenario "Z"; known: A`},
		{"--scenario drawn-999999999999", `"drawn-999999999999": want drawn-NUMBER, a whole number from 0 to 4294967295`},
		{"--scenario drawn-01", "without zeros in front"},
		{"--policy nope", `unknown profile "nope"; known`},
		{"--policy nope=1", `unknown scorer "nope"; known`},
		{"--policy queue=x", `weight "x" of queue is no number; want 0 or more`},
		{"--policy queue=-1", "weight of queue is -1; it must be 0 or more"},
		{"--policy queue=1,queue=2", "queue has two weights; want one"},
		{"--policy throughput,queue=2", `"throughput" has no weight, as in queue=2; profiles and weights go into separate flags`},
		{"--load 0", `"0": want a number from 0.001 to 100`},
		{"--load 1e-300", "from 0.001 to 100"},
		{"--load 1,nan", `"nan": want`},
		{"--fleet h100-8b", `"h100-8b" is not KIND=NUMBER: want a whole number from 1 to 10000`},
		{"--fleet h100-8b=10001", "from 1 to 10000"},
		{"--fleet h100-8b=10000,a10g-8b=1", "more than 10000 pods together"},
		{"--fleet z80=1", `"z80"; known: a100-70b`},
		{"--scenario killed --fleet h100-8b=1", "pod 1 fails, counted from 0, and --fleet has 1"},
		{"--trace file", "want SCENARIO=FILE"},
		{"--trace A=", "want SCENARIO=FILE"},
		{"--trace A=a.csv --trace A=b.csv", "A has a trace already, a.csv"},
		{"--trace A=a.txt", "known: .jsonl"},
		{"--scenario A --trace F=file.csv", `"F", which is not among`},
		{"--scrape 1us", `"1us": want a duration from 1ms to 1h0m0s`},
		{"--scrape 2000000h", "from 1ms to 1h0m0s"},
		{"--routers 0", `"0": want a whole number from 1 to 100`},
		{"--gossip -1s", "want a duration from 0s to 1h0m0s"},
		{"--seeds 0", "want a whole number from 1 to 10000"},
		{"--seeds 1000000000000", "from 1 to 10000"},
		{"--seeds many", "want a whole number from 1 to 10000"},
		{"--seed -1", "from 0 to 1000000000"},
		{"--parallel 0", "from 1 to 256"},
		{"--parallel 1000000000", "from 1 to 256"},
		{"--blind 2", "want a number from 0 to 1"},
		{"--blind nan", "want a number from 0 to 1"},
		{"--whole -0.5", "want a number from 0 to 1"},
		{"--token-error 1e9", "want a number from 0 to 1"},
		{"--token-error nan", "want a number from 0 to 1"},
		{"A", `unexpected argument "A"`},
	} {
		t.Run(tt.args, func(t *testing.T) {
			// Ended before it begins: what is not found fault with must not run.
			ctx, cancel := context.WithCancel(t.Context())
			cancel()
			if err := Main(ctx, strings.Fields(tt.args), io.Discard); !errors.Is(err, ErrUsage) || !strings.Contains(err.Error(), tt.says) {
				t.Errorf("error %v, want a misuse with %q", err, tt.says)
			}
		})
	}
	if text, err := main(t, "--help"); err != nil || !strings.Contains(text, "-scenario") {
		t.Errorf("help: %v\n%s", err, text)
	}
}

func TestALoadWithoutRequestsIsMisuse(t *testing.T) {
	sc := scenario(t, "A")
	sc.Load = func(*gen) []Request { return nil }
	st := &study{scenario: sc, policies: []string{"random"}, seeds: 3, scales: []float64{0.5}, parallel: 1}
	if _, err := st.run(t.Context()); !errors.Is(err, ErrUsage) || !strings.Contains(err.Error(), "no requests at density 0.5; want a higher --load") {
		t.Errorf("error %v", err)
	}
}

// What cannot be written must be known before hours of work, and what must not be
// overwritten must not.
func TestOutputsAreTriedFirst(t *testing.T) {
	dir := t.TempDir()
	trace := filepath.Join(dir, "t.csv")
	const rows = "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:15:46.68,3,4\n2023-11-16 18:15:47.68,3,4\n"
	if err := os.WriteFile(trace, []byte(rows), 0o600); err != nil {
		t.Fatal(err)
	}
	missing := filepath.Join(dir, "missing", "file")
	for _, flags := range [][]string{{"--svg", missing}, {"--csv", missing}} {
		if text, err := main(t, append(flags, "--scenario", "H", "--trace", "H="+trace)...); !errors.Is(err, os.ErrNotExist) || text != "" {
			t.Errorf("%s: error %v after\n%s", flags, err, text)
		}
	}
	for _, out := range []string{"--svg", "--csv"} {
		if _, err := main(t, out, trace, "--scenario", "H", "--trace", "H="+trace); !errors.Is(err, ErrUsage) || !strings.Contains(err.Error(), "is the trace") {
			t.Errorf("%s over the trace: %v", out, err)
		}
	}
	if text, err := os.ReadFile(trace); err != nil || string(text) != rows {
		t.Errorf("the trace is now %q, %v", text, err)
	}
	if _, err := main(t, "--svg", filepath.Join(dir, "p.svg"), "--scenario", "H", "--trace", "H="+trace, "--routers", "1,2", "--seeds", "1"); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"p-1.svg", "p-2.svg"} { // one plot must not replace the other
		if _, err := os.Stat(filepath.Join(dir, name)); err != nil {
			t.Error(err)
		}
	}
}

func TestARunEndsWithItsContext(t *testing.T) {
	sc := scenario(t, "A")
	load := []Request{{Prompt: []Segment{{1, 10}}, Output: 1}, {At: 100 * 365 * 24 * time.Hour, Prompt: []Segment{{1, 10}}, Output: 1}}
	ctx, cancel := context.WithCancelCause(t.Context())
	why := errors.New("enough")
	_, err := Run(ctx, sc, load, func() (Policy, error) {
		return choose(func(*scorers.Request, []podstate.Candidate) (int, int) {
			cancel(why)
			return 0, -1
		}), nil
	}, 1)
	if !errors.Is(err, why) {
		t.Errorf("error %v", err)
	}
	// Neither may a study wait for slots that nobody gives back.
	st := &study{scenario: sc, policies: []string{"random"}, seeds: 3, scales: []float64{1, 2, 3}, parallel: 1}
	if _, err := st.run(ctx); !errors.Is(err, why) {
		t.Errorf("a study: error %v", err)
	}
}

// No token is no time of zero seconds, which would be the best.
func TestPoliciesWithoutTokensAreBehind(t *testing.T) {
	runs := func(ttft float64) []Measures {
		return []Measures{{TTFT: Spread{ttft, ttft, ttft, ttft}, Throughput: 1}, {TTFT: Spread{ttft, ttft, ttft, ttft}, Throughput: 1}}
	}
	of := func(a, b float64) *result {
		return &result{study: &study{scenario: scenario(t, "A"), policies: []string{"mute", "good"}, seeds: 2, scales: []float64{1}}, runs: [][][]Measures{{runs(a), runs(b)}}}
	}
	r := of(0, 2)
	if mute, good := r.frontier(0, 0), r.frontier(0, 1); mute != "no" || good != "yes" {
		t.Errorf("on the frontier: %q without tokens, %q with some", mute, good)
	}
	if got := collapsed(r.runs[0]); got[0] != 2 || got[1] != 0 {
		t.Errorf("%d collapsed seeds", got)
	}
	var w strings.Builder
	if err := errors.Join(r.text(&w), summary(&w, []*result{r, of(1, 1), of(0, 0)})); err != nil {
		t.Fatal(err)
	}
	text := strings.Join(strings.Fields(w.String()), " ")
	for _, want := range []string{"mute - - - - -", "good 2 2 2 2", "good - - - - 3 scenarios", "mute - 50% -", "good 1.00 0% 1"} {
		if !strings.Contains(text, want) {
			t.Errorf("the text lacks %q:\n%s", want, w.String())
		}
	}
	for _, bad := range []string{"NaN", "Inf"} {
		if strings.Contains(w.String(), bad) || strings.Contains(string(r.svg()), bad) {
			t.Errorf("%s in\n%s\n%s", bad, w.String(), r.svg())
		}
	}
}

func TestChangesHaveASignUnlessTheyAreNone(t *testing.T) {
	for change, want := range map[float64]string{-0.4: "0", 0: "0", 0.4: "0", 1: "+1", -97.2: "-97", math.NaN(): "-"} {
		if got := percent(change); got != want {
			t.Errorf("%v: %q, want %q", change, got, want)
		}
	}
}
