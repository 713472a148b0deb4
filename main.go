// Command warmpath is an Envoy ext_proc server that sends each LLM request to
// the GPU pod that will answer it soonest.
//
// main.go reads the command line, commands.go has the body of each command, but
// for those about past decisions, which are in decisions.go; wire.go makes and
// runs the parts of the server, and pool.go those of a pool.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"

	"github.com/spf13/pflag"

	"github.com/warmpath/warmpath/proto/config"
	"github.com/warmpath/warmpath/scorers/sim"
)

const usage = `warmpath sends each LLM request to the pod that will answer it soonest.

Usage: warmpath COMMAND [flags]

  serve      --config FILE                      answer Envoy
  bootstrap  --config FILE                      print a configuration for Envoy
  check      --config FILE [--envoy FILE]       say what is wrong with a configuration
  inspect    URL                                show what is read from a pod
  explain    ID                                 say why a request went where it went
  replay     FILE [--profile NAMES]             make logged decisions again, and compare profiles
  sim        [flags]                            compare policies in a simulation
  version                                       print the version

"warmpath COMMAND --help" lists the flags of a command.
`

// commands are the bodies behind the command line. Each writes what was asked
// for to stdout.
func commands() map[string]func(ctx context.Context, args []string, stdout io.Writer) error {
	return map[string]func(context.Context, []string, io.Writer) error{
		"serve":     serve,
		"bootstrap": bootstrap,
		"check":     check,
		"inspect":   inspect,
		"explain":   explain,
		"replay":    replayLog,
		"sim":       sim.Main,
		"version":   printVersion,
	}
}

// Exit codes.
const (
	exitOK     = 0
	exitFailed = 1
	exitMisuse = 2 // the command line or the configuration is wrong
)

// misuse is an error in how warmpath was called.
type misuse string

func (m misuse) Error() string { return string(m) }

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), ends()...)
	context.AfterFunc(ctx, func() {
		signal.Ignore(syscall.SIGHUP) // a terminal that closes sends several
		stop()                        // any other second signal ends the process at once
	})
	os.Exit(run(ctx, os.Args[1:], os.Stdout, os.Stderr))
}

// ends returns the signals that end a command in peace. That of a terminal that
// closes is not among them under nohup.
func ends() []os.Signal {
	signals := []os.Signal{os.Interrupt, syscall.SIGTERM}
	if !signal.Ignored(syscall.SIGHUP) {
		signals = append(signals, syscall.SIGHUP)
	}
	return signals
}

// run executes a command line and returns the exit code.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	if len(args) == 0 || slices.Contains([]string{"help", "--help", "-h"}, args[0]) {
		fmt.Fprint(stdout, usage)
		return exitOK
	}
	known := commands()
	command, ok := known[args[0]]
	if !ok {
		fmt.Fprintf(stderr, "warmpath: unknown command %q; commands: %s\n", args[0], strings.Join(slices.Sorted(maps.Keys(known)), ", "))
		return exitMisuse
	}
	err := command(ctx, args[1:], stdout)
	var wrong misuse
	var mistakes config.Mistakes
	switch {
	case err == nil || errors.Is(err, pflag.ErrHelp):
		return exitOK
	case errors.As(err, &mistakes):
		fmt.Fprintln(stderr, mistakes)
		return exitMisuse
	case errors.As(err, &wrong), errors.Is(err, sim.ErrUsage):
		fmt.Fprintf(stderr, "warmpath %s: %v; see warmpath %s --help\n", args[0], err, args[0])
		return exitMisuse
	default:
		fmt.Fprintf(stderr, "warmpath %s: %v\n", args[0], err)
		return exitFailed
	}
}

// parse reads the flags of a command and returns its n arguments. stdout is for
// the help, which names the arguments as in use.
func parse(fs *pflag.FlagSet, args []string, use string, n int, stdout io.Writer) ([]string, error) {
	fs.Usage = func() {
		fmt.Fprintf(stdout, "Usage: warmpath %s\n\n%s", strings.TrimSpace(fs.Name()+" "+use), fs.FlagUsages())
	}
	fs.SetOutput(io.Discard) // errors are printed once, by run
	if err := fs.Parse(args); errors.Is(err, pflag.ErrHelp) {
		return nil, err
	} else if err != nil {
		return nil, misuse(err.Error())
	}
	if fs.NArg() != n && n == 0 {
		return nil, misuse(fmt.Sprintf("arguments %q; takes flags only", fs.Args()))
	} else if fs.NArg() != n {
		return nil, misuse(fmt.Sprintf("arguments %q; want %d: %s", fs.Args(), n, use))
	}
	return fs.Args(), nil
}
