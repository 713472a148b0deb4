// Command cmd is `warmpath sim` alone, quick to build while a policy is tuned.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"

	"github.com/warmpath/warmpath/scorers/sim"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := sim.Main(ctx, os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "sim:", err)
		os.Exit(1)
	}
}
