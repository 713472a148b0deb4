package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/url"
	"os"
	"runtime/debug"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/pflag"

	"github.com/warmpath/warmpath/envoy"
	"github.com/warmpath/warmpath/podstate/scrape"
	"github.com/warmpath/warmpath/proto/config"
	"github.com/warmpath/warmpath/proto/configpb"
	"github.com/warmpath/warmpath/scorers"
)

// configFlag adds the flag of the configuration file.
func configFlag(fs *pflag.FlagSet) *string {
	return fs.String("config", "", "the gateway's configuration `FILE`, YAML or JSON")
}

func load(path string) (*configpb.GatewayConfig, error) {
	if path == "" {
		return nil, misuse("--config is missing; want the gateway's configuration file")
	}
	return config.Load(path, config.Known{
		Profiles: scorers.Profiles(), Scorers: scorers.Names(), Engines: scrape.EngineNames(),
	})
}

func serve(ctx context.Context, args []string, stdout io.Writer) error {
	fs := pflag.NewFlagSet("serve", pflag.ContinueOnError)
	file := configFlag(fs)
	verbose := fs.Bool("debug", false, "log what becomes of each request to stderr, without prompts")
	if _, err := parse(fs, args, "", 0, stdout); err != nil {
		return err
	}
	cfg, err := load(*file)
	if err != nil {
		return err
	}
	level := slog.LevelInfo
	if *verbose {
		level = slog.LevelDebug
	}
	log := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: level}))
	p, err := build(cfg, prometheus.NewRegistry(), log)
	if err != nil {
		return mistakesOf(err, *file)
	}
	return p.run(ctx)
}

// mistakesOf turns an error of build into mistakes in the configuration.
func mistakesOf(err error, file string) (mistakes config.Mistakes) {
	all := []error{err}
	if several, ok := err.(interface{ Unwrap() []error }); ok {
		all = several.Unwrap()
	}
	for _, err := range all {
		m := config.Mistake{File: file, Text: err.Error()}
		if f := (*fault)(nil); errors.As(err, &f) {
			m.Line, m.Path, m.Text = config.Line(file, f.field), f.field, f.err.Error()
		}
		mistakes = append(mistakes, m)
	}
	return mistakes
}

func bootstrap(_ context.Context, args []string, stdout io.Writer) error {
	fs := pflag.NewFlagSet("bootstrap", pflag.ContinueOnError)
	file := configFlag(fs)
	version := fs.String("envoy-version", "", "leave out what this `VERSION` of Envoy refuses, as in 1.36 (default: the newest known)")
	pickers := fs.StringSlice("picker", nil, "`HOST:PORT` at which Envoy reaches warmpath, once for each replica (default: server.grpc.address, on the same machine)")
	if _, err := parse(fs, args, "", 0, stdout); err != nil {
		return err
	}
	cfg, err := load(*file)
	if err != nil {
		return err
	}
	text, err := envoy.Bootstrap(cfg, envoy.Target{Version: *version, Pickers: *pickers})
	if err != nil {
		return misuse(err.Error()) // the configuration is right, so it is the flags
	}
	_, err = stdout.Write(text)
	return err
}

// check builds everything that serve would run, so that what passes here
// starts there. It looks into an Envoy configuration in any case.
func check(_ context.Context, args []string, stdout io.Writer) error {
	fs := pflag.NewFlagSet("check", pflag.ContinueOnError)
	file := configFlag(fs)
	envoyFile := fs.String("envoy", "", "look for known traps in this configuration `FILE` of an Envoy, too")
	if _, err := parse(fs, args, "", 0, stdout); err != nil {
		return err
	}
	cfg, err := load(*file)
	var mistakes config.Mistakes
	switch {
	case errors.As(err, &mistakes):
	case err != nil:
		return err
	default:
		if _, err := build(cfg, prometheus.NewRegistry(), slog.New(slog.DiscardHandler)); err != nil {
			mistakes = mistakesOf(err, *file)
		}
	}
	if *envoyFile != "" {
		mistakes = append(mistakes, checkEnvoy(*envoyFile)...)
	}
	if len(mistakes) > 0 {
		return mistakes
	}
	_, err = fmt.Fprintf(stdout, "%s: ok: pools %s\n", *file, strings.Join(poolNames(cfg), ", "))
	if *envoyFile != "" && err == nil {
		_, err = fmt.Fprintf(stdout, "%s: no known trap; envoy --mode validate looks for the rest\n", *envoyFile)
	}
	return err
}

func checkEnvoy(file string) (mistakes config.Mistakes) {
	text, err := os.ReadFile(file)
	if err != nil {
		return config.Mistakes{{File: file, Text: err.Error()}}
	}
	findings, err := envoy.CheckConfig(text)
	if err != nil {
		return config.Mistakes{{File: file, Text: err.Error()}}
	}
	for _, f := range findings {
		mistakes = append(mistakes, config.Mistake{File: file, Line: f.Line, Text: f.Text})
	}
	return mistakes
}

func inspect(ctx context.Context, args []string, stdout io.Writer) error {
	fs := pflag.NewFlagSet("inspect", pflag.ContinueOnError)
	engine := fs.String("engine", scrape.Auto, "kind of model `SERVER`")
	token := fs.String("token", "", "bearer `TOKEN` that the pod wants")
	var trust configpb.ScrapeTLS
	fs.StringVar(&trust.CaFile, "ca-file", "", "PEM `FILE` to trust in place of what the system trusts")
	fs.StringVar(&trust.ServerName, "server-name", "", "`NAME` in the pod's certificate")
	fs.BoolVar(&trust.InsecureSkipVerify, "insecure-skip-verify", false, "believe any certificate")
	urls, err := parse(fs, args, "URL", 1, stdout)
	if err != nil {
		return err
	}
	tls, err := scrapeTLS(&trust)
	if err != nil {
		return misuse(err.Error())
	}
	if _, err := httpURL(urls[0]); err != nil {
		return err
	}
	cfg := scrape.Config{Engine: *engine, Token: *token, TLS: tls}
	if _, err := scrape.New(cfg, nil, nil, nil); err != nil {
		return misuse(err.Error())
	}
	report, err := scrape.Inspect(ctx, urls[0], cfg)
	if err != nil {
		return err
	}
	_, err = report.WriteTo(stdout)
	return err
}

// httpURL reads the URL of a server as people write it; of those with neither
// http nor https in front it makes one with http.
func httpURL(text string) (*url.URL, error) {
	whole := text
	if !strings.Contains(text, "://") {
		whole = "http://" + text
	}
	u, err := url.Parse(whole)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "" || u.RawQuery != "" || u.User != nil {
		return nil, misuse(fmt.Sprintf("%q is not the URL of a server; write http://10.0.0.1:8000 or 10.0.0.1:8000", text))
	}
	return u, nil
}

// version is set by the linker (-X main.version=v1.2.3); go install knows it
// without.
var version string

func printVersion(_ context.Context, args []string, stdout io.Writer) error {
	fs := pflag.NewFlagSet("version", pflag.ContinueOnError)
	if _, err := parse(fs, args, "", 0, stdout); err != nil {
		return err
	}
	v, commit, built := version, "", "go"
	if info, ok := debug.ReadBuildInfo(); ok {
		if v == "" {
			v = info.Main.Version
		}
		built = info.GoVersion
		for _, s := range info.Settings {
			if s.Key == "vcs.revision" {
				commit = " commit " + s.Value
			}
		}
	}
	_, err := fmt.Fprintf(stdout, "warmpath %s%s %s\n", v, commit, built)
	return err
}
