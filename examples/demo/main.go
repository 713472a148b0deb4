// Command demo shows what warmpath does: four simulated model servers, two fast
// and two slow, behind a real Envoy, under the same load twice. First Envoy
// deals the requests out in turn, then warmpath chooses.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/warmpath/warmpath/examples/load"
	"github.com/warmpath/warmpath/examples/rig"
	"github.com/warmpath/warmpath/scorers/sim/engine"
)

type options struct {
	warmpath string        // binary; empty: build it
	duration time.Duration // of each of the two runs
	rate     float64       // requests a second
	keep     bool
	listen   string // of the Envoy that stays
}

func main() {
	var o options
	flag.StringVar(&o.warmpath, "warmpath", "", "the binary; empty: build it from this module")
	flag.DurationVar(&o.duration, "duration", 30*time.Second, "how long to play each of the two runs")
	flag.Float64Var(&o.rate, "rate", 16, "requests a second, on average")
	flag.BoolVar(&o.keep, "keep", false, "leave all running afterwards, until interrupted")
	flag.StringVar(&o.listen, "listen", "127.0.0.1:0", "where the Envoy with warmpath listens; port 0 is any free one")
	flag.Parse()

	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, o, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "demo:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, o options, out io.Writer) error {
	fmt.Fprintln(out, "Starting four simulated model servers, two Envoys and warmpath …")
	var pods []engine.Config
	for _, gpu := range []string{"h100-8b", "h100-8b", "a10g-8b", "a10g-8b"} {
		e, err := engine.Preset(gpu)
		if err != nil {
			return err
		}
		pods = append(pods, e)
	}
	r, err := rig.Start(ctx, rig.Options{Pods: pods, Warmpath: o.warmpath, Listen: o.listen})
	if err != nil {
		return err
	}
	defer r.Close()

	fmt.Fprintf(out, "\n  fast  %s  %s   (Llama 8B on an H100, simulated)\n", r.Pods[0].Addr, r.Pods[1].Addr)
	fmt.Fprintf(out, "  slow  %s  %s   (Llama 8B on an A10G, simulated)\n", r.Pods[2].Addr, r.Pods[3].Addr)
	fmt.Fprintf(out, "\nSend a request yourself:\n\n  curl -N http://%s/v1/chat/completions -H 'content-type: application/json' \\\n"+
		"    -d '{\"model\":\"%s\",\"messages\":[{\"role\":\"user\",\"content\":\"hello\"}],\"max_tokens\":20,\"stream\":true}'\n", r.Warmpath, rig.Model)
	fmt.Fprintf(out, "\nWhat warmpath sees:     curl http://%s/pods\nWhy it chose as it did: bin/warmpath explain --admin http://%s last\n\n", r.Admin, r.Admin)

	plan := load.Mix{Model: rig.Model, Duration: o.duration, Rate: o.rate, Seed: 1,
		Apps: 8, SystemTokens: 1500, LongShare: 0.05, LongTokens: 4000}.Plan()
	turn, err := play(ctx, out, r, "round robin", r.RoundRobin, plan)
	if err != nil {
		return err
	}
	smart, err := play(ctx, out, r, "warmpath", r.Warmpath, plan)
	if err != nil {
		return err
	}
	table(out, turn, smart)
	if o.keep && ctx.Err() == nil {
		fmt.Fprintf(out, "\nAll stays up at http://%s until you press Ctrl-C.\n", r.Warmpath)
		<-ctx.Done()
	}
	return nil
}

// outcome is one run.
type outcome struct {
	load.Summary
	share []float64 // of the requests, by pod
}

// play plays the plan on pods that know nothing yet.
func play(ctx context.Context, out io.Writer, r *rig.Rig, name, addr string, plan []load.Request) (outcome, error) {
	r.ResetCaches()
	before := r.Served()
	results := load.Run(ctx, plan, load.Options{
		URL:      "http://" + addr + "/v1/chat/completions",
		Timeout:  30 * time.Second,
		Progress: func(done, total int) { progress(out, name, done, total) },
	})
	fmt.Fprintln(out)
	if err := ctx.Err(); err != nil {
		return outcome{}, err
	}
	o := outcome{Summary: load.Summarize(plan, results)}
	if o.Failed == o.Requests {
		return o, fmt.Errorf("all requests through %s failed, the first with: %w", name, results[0].Err)
	}
	after := r.Served()
	for i := range after {
		o.share = append(o.share, float64(after[i]-before[i])/float64(o.Requests))
	}
	return o, r.Settle(ctx)
}

func progress(out io.Writer, name string, done, total int) {
	const width = 40
	if step := max(1, total/200); done != total && (done%step != 0 || !terminal(out)) {
		return
	}
	full := width * done / total
	fmt.Fprintf(out, "\r%-12s [%s%s] %d/%d", name, strings.Repeat("#", full), strings.Repeat(".", width-full), done, total)
}

// terminal reports whether a line can be written over.
func terminal(out io.Writer) bool {
	f, ok := out.(*os.File)
	if !ok {
		return false
	}
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}

func table(out io.Writer, a, b outcome) {
	row := func(name, x, y string) { fmt.Fprintf(out, "%-30s %14s %14s\n", name, x, y) }
	duration := func(name string, x, y time.Duration) {
		row(name, x.Round(time.Millisecond).String(), y.Round(time.Millisecond).String())
	}
	percent := func(x float64) string { return fmt.Sprintf("%.0f %%", 100*x) }
	fmt.Fprintln(out)
	row("", "round robin", "warmpath")
	duration("time to first token, p50", a.TTFT.P50, b.TTFT.P50)
	duration("time to first token, p95", a.TTFT.P95, b.TTFT.P95)
	duration("time to first token, p99", a.TTFT.P99, b.TTFT.P99)
	duration("whole answer, p50", a.Total.P50, b.Total.P50)
	duration("whole answer, p99", a.Total.P99, b.Total.P99)
	row("prompt tokens from a cache", percent(a.Cached), percent(b.Cached))
	row("requests on the slow pods", percent(a.share[2]+a.share[3]), percent(b.share[2]+b.share[3]))
	row("failed", fmt.Sprintf("%d of %d", a.Failed, a.Requests), fmt.Sprintf("%d of %d", b.Failed, b.Requests))
	if late := max(a.Late, b.Late); late > 50*time.Millisecond {
		fmt.Fprintf(out, "\nThis machine was up to %v late in sending a request: the numbers are too high by that.\n", late.Round(time.Millisecond))
	}
}
