package admin

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/warmpath/warmpath/podstate"
	"github.com/warmpath/warmpath/scorers"
	"github.com/warmpath/warmpath/scorers/replay"
)

func TestDecisions(t *testing.T) {
	s := newServer("10.0.0.1:8000", "", true)
	a, b := s.cfg.Decisions.Watch("a", "latency", nil, last{}), s.cfg.Decisions.Watch("b", "latency", nil, last{})
	for i := range uint64(3) {
		a.Choose(&scorers.Request{Seed: i, Key: 99, Tokens: 12}, candidates(2))
	}
	b.Choose(&scorers.Request{Seed: 255}, nil)

	list := func(query string, want ...string) {
		t.Helper()
		code, body := get(t, s, "/decisions"+query)
		var views []decisionView
		if err := json.Unmarshal([]byte(body), &views); code != 200 || err != nil {
			t.Fatalf("%d, %v: %s", code, err, body)
		}
		var got []string
		for _, v := range views {
			got = append(got, fmt.Sprintf("%s %s %s %s%s", strings.TrimLeft(v.ID, "0"), v.Pool, v.First, v.Second, v.Refusal))
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s: got %q, want %q", query, got, want)
		}
	}
	const pods = "10.0.0.1:8000 10.0.0.0:8000"
	list("", "2 a "+pods, "1 a "+pods, " a "+pods, "ff b  no pod")
	list("?pool=a&limit=1", "2 a "+pods)

	code, body := get(t, s, "/decisions/0000000000000002")
	d, err := replay.Parse([]byte(body))
	if code != 200 || err != nil || d.Request.Tokens != 12 || d.First.Addr != "10.0.0.1:8000" || d.Prompt == 0 || d.Prompt == 99 {
		t.Errorf("%d, %v: %s", code, err, body)
	}
	if code, body := get(t, s, "/decisions/last"); code != 200 || !strings.Contains(body, `"id":"00000000000000ff"`) {
		t.Errorf("the last: %d %s", code, body)
	}
	if code, body := get(t, s, "/decisions/77"); code != 404 || !strings.Contains(body, `"77"`) {
		t.Errorf("unknown: %d %s", code, body)
	}
	if code, body := get(t, s, "/decisions?pool=c"); code != 404 || !strings.Contains(body, `"c"; pools: a, b`) {
		t.Errorf("unknown pool: %d %s", code, body)
	}
	if code, body := get(t, s, "/decisions?limit=0"); code != 400 || !strings.Contains(body, "want 1 to 1000") {
		t.Errorf("limit 0: %d %s", code, body)
	}
}

func TestAPoolWithoutPodsIsNotFresh(t *testing.T) {
	s := newServer("10.0.0.1:8000", "", true)
	s.cfg.Decisions.Watch("a", "latency", nil, last{}).Choose(&scorers.Request{}, nil)
	if d := s.cfg.Decisions.find("last"); d == nil || d.Request.Rung != podstate.RungHash {
		t.Errorf("the refusal is kept as %+v; want rung %v", d, podstate.RungHash)
	}
}
