package admin

import (
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/warmpath/warmpath/podstate"
	"github.com/warmpath/warmpath/scorers/replay"
)

// decisionView is a line of /decisions.
type decisionView struct {
	ID      string    `json:"id"`
	Time    time.Time `json:"time"`
	Pool    string    `json:"pool"`
	Tokens  int       `json:"promptTokens"`
	Adapter string    `json:"adapter,omitempty"`
	Pods    int       `json:"pods"` // that were there to choose from
	First   string    `json:"first,omitempty"`
	Second  string    `json:"second,omitempty"`
	Refusal string    `json:"refusal,omitempty"`
}

func viewDecision(d *replay.Decision) decisionView {
	addr := func(p *podstate.Pod) string {
		if p == nil {
			return ""
		}
		return p.Addr
	}
	return decisionView{ID: d.ID(), Time: d.Time, Pool: d.Pool, Tokens: d.Request.Tokens, Adapter: d.Request.Adapter,
		Pods: len(d.Candidates), First: addr(d.First), Second: addr(d.Second), Refusal: d.Request.Refusal}
}

const (
	defaultDecisions = 100
	maxDecisions     = 1000
)

// decisions lists the newest decisions of each pool, the newest first.
func (s *Server) decisions(w http.ResponseWriter, r *http.Request) {
	limit := defaultDecisions
	if text := r.URL.Query().Get("limit"); text != "" {
		n, err := strconv.Atoi(text)
		if err != nil || n < 1 || n > maxDecisions {
			reply(w, http.StatusBadRequest, fmt.Sprintf("limit %q; want 1 to %d\n", text, maxDecisions))
			return
		}
		limit = n
	}
	pool := r.URL.Query().Get("pool")
	views := []decisionView{}
	var known []string
	for _, rec := range s.cfg.Decisions.pools {
		known = append(known, rec.pool)
		if pool == "" || rec.pool == pool {
			views = append(views, rec.newest(limit)...)
		}
	}
	if pool != "" && !slices.Contains(known, pool) {
		reply(w, http.StatusNotFound, fmt.Sprintf("no pool is called %q; pools: %s\n", pool, strings.Join(known, ", ")))
		return
	}
	replyJSON(w, views)
}

func (w *recording) newest(limit int) (views []decisionView) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, e := range w.kept[max(0, len(w.kept)-limit):] {
		views = append(views, viewDecision(&e.Decision))
	}
	slices.Reverse(views)
	return views
}

// decision shows all of one decision, as a line of the log. The id "last" is the
// newest of all.
func (s *Server) decision(w http.ResponseWriter, r *http.Request) {
	id := r.PathValue("id")
	d := s.cfg.Decisions.find(id)
	if d == nil {
		reply(w, http.StatusNotFound, fmt.Sprintf("no decision %q is kept, or none any more; GET /decisions lists the newest\n", id))
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	w.Write(s.cfg.Decisions.line(nil, d, nil))
}

// find returns a copy of a decision that is kept, or nil.
func (r *Recorder) find(id string) (found *replay.Decision) {
	seed, err := strconv.ParseUint(id, 16, 64)
	last := id == "last"
	if err != nil && !last {
		return nil
	}
	for _, w := range r.pools {
		d := w.find(func(e *entry) bool { return last || e.Request.Seed == seed })
		if d != nil && (found == nil || d.Time.After(found.Time)) {
			found = d
		}
	}
	return found
}

// find returns a copy of the newest decision that is right, or nil.
func (w *recording) find(right func(*entry) bool) *replay.Decision {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, e := range slices.Backward(w.kept) {
		if right(e) {
			d := new(replay.Decision)
			e.copyTo(d)
			return d
		}
	}
	return nil
}
