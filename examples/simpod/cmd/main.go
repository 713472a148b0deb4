// Command simpod runs one simulated model server until it is interrupted.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/warmpath/warmpath/examples/simpod"
	"github.com/warmpath/warmpath/scorers/sim/engine"
)

func main() {
	var cfg simpod.Config
	flag.StringVar(&cfg.Addr, "addr", "127.0.0.1:8000", "host:port to listen on")
	flag.StringVar(&cfg.Model, "model", "sim", "name of the base model")
	adapters := flag.String("adapters", "", "LoRA adapters, separated by commas")
	gpu := flag.String("gpu", "h100-8b", "kind of model server, see scorers/sim/engine")
	flag.Float64Var(&cfg.Speedup, "speedup", 1, "how much faster than that GPU")
	flag.IntVar(&cfg.StreamInterval, "stream-interval", 1, "tokens in one event of a stream after the first")
	flag.BoolVar(&cfg.ServerLoad, "server-load", false, "count requests at /load")
	flag.StringVar((*string)(&cfg.Fault), "fault", "", "misbehave: busy, hang, sleep, drain, slow or lie")
	flag.Parse()
	if err := run(cfg, *gpu, *adapters); err != nil {
		fmt.Fprintln(os.Stderr, "simpod:", err)
		os.Exit(1)
	}
}

func run(cfg simpod.Config, gpu, adapters string) (err error) {
	if cfg.Engine, err = engine.Preset(gpu); err != nil {
		return err
	}
	if adapters != "" {
		cfg.Adapters = strings.Split(adapters, ",")
	}
	s, err := simpod.Start(cfg)
	if err != nil {
		return err
	}
	defer s.Close()
	fmt.Printf("simpod: %s on a simulated %s at %s\n", cfg.Model, gpu, s.Addr)
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	<-ctx.Done()
	return nil
}
