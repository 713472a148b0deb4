package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/warmpath/warmpath/scorers/replay"
	"github.com/warmpath/warmpath/scorers/sim"
)

// replayLog makes the decisions of a log again.
func replayLog(ctx context.Context, args []string, stdout io.Writer) error {
	fs := pflag.NewFlagSet("replay", pflag.ContinueOnError)
	profiles := fs.StringArray("profile", nil, "compare with these `PROFILES`, separated by commas, or with the weights of one, as in queue=2,prefix=3; may be repeated")
	simulate := fs.Bool("simulate", false, "also play the logged requests against simulated pods, where other choices have their consequences; wants a log of all decisions")
	rows := fs.String("csv", "", "write a row for each decision and profile to this `FILE`")
	files, err := parse(fs, args, "FILE", 1, stdout)
	if err != nil {
		return err
	}
	others := policies(*profiles)
	study, err := replay.NewStudy(others)
	if err != nil {
		return misuse(err.Error())
	}
	traffic := replay.Traffic{}
	log, err := os.Open(files[0])
	if err != nil {
		return err
	}
	defer log.Close()
	flush := func() error { return nil }
	if *rows != "" {
		if sim.SameFile(*rows, files[0]) {
			return misuse(fmt.Sprintf("--csv %s is the log, which would be lost; name another file", *rows))
		}
		f, err := os.Create(*rows)
		if err != nil {
			return err
		}
		defer f.Close()
		flush = study.WriteCSV(f)
	}
	for d, err := range replay.Read(log) {
		if err != nil {
			study.Skip(err)
			continue
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		study.Add(d)
		if *simulate {
			traffic.Add(d)
		}
	}
	if err := errors.Join(flush(), study.WriteText(stdout), traffic.WriteText(ctx, stdout, others)); err != nil {
		return err
	}
	return study.OK()
}

// policies splits lists of profiles, but not weights.
func policies(args []string) (list []string) {
	for _, arg := range args {
		if strings.Contains(arg, "=") {
			list = append(list, arg)
		} else {
			list = append(list, strings.Split(arg, ",")...)
		}
	}
	return list
}

// explain shows why a decision came out as it did.
func explain(ctx context.Context, args []string, stdout io.Writer) error {
	fs := pflag.NewFlagSet("explain", pflag.ContinueOnError)
	admin := fs.String("admin", "http://127.0.0.1:9090", "`URL` of server.admin of the warmpath that decided")
	token := fs.String("token", "", "its server.admin.adminToken, a `TOKEN` that other hosts need")
	file := fs.String("file", "", "look in this log `FILE` instead")
	ids, err := parse(fs, args, "ID", 1, stdout)
	if err != nil {
		return err
	}
	var d *replay.Decision
	if ids[0] == "" {
		return misuse(`the ID is empty; want one that Envoy's access log or GET /decisions has, or "last"`)
	} else if *file != "" {
		d, err = findDecision(*file, ids[0])
	} else {
		d, err = fetchDecision(ctx, *admin, *token, ids[0])
	}
	if err != nil {
		return err
	}
	return d.Explain(stdout)
}

// findDecision looks for a decision in a log; "last" is the last one that can be
// read.
func findDecision(file, id string) (found *replay.Decision, err error) {
	log, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer log.Close()
	var problem error
	for d, err := range replay.Read(log) {
		if err != nil {
			problem = err
		} else if id == "last" || d.ID() == id {
			found = d
		}
	}
	switch {
	case found != nil:
		return found, nil
	case problem != nil:
		return nil, fmt.Errorf("no decision %q in what can be read of %s; %w", id, file, problem)
	}
	return nil, fmt.Errorf("no decision %q in %s", id, file)
}

// fetchDecision asks a running warmpath.
func fetchDecision(ctx context.Context, admin, token, id string) (*replay.Decision, error) {
	base, err := httpURL(admin)
	if err != nil {
		return nil, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, base.JoinPath("decisions", url.PathEscape(id)).String(), nil)
	if err != nil {
		return nil, err
	}
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	client := http.Client{Timeout: 10 * time.Second}
	resp, err := client.Do(req)
	if os.IsTimeout(err) {
		return nil, fmt.Errorf("%w; an answer may take %v", err, client.Timeout)
	} else if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(io.LimitReader(resp.Body, 256<<20))
	if err != nil {
		return nil, err
	}
	if resp.StatusCode != http.StatusOK {
		err := fmt.Errorf("%s answers %s: %.400s", base, resp.Status, bytes.TrimSpace(text)) // perhaps it is no warmpath
		if resp.StatusCode == http.StatusUnauthorized {
			err = fmt.Errorf("%w; --token gives it", err)
		}
		return nil, err
	}
	return replay.Parse(text)
}
