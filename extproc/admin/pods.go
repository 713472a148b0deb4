package admin

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"maps"
	"math"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"github.com/prometheus/prom2json"

	"github.com/warmpath/warmpath/podstate"
	"github.com/warmpath/warmpath/scorers/replay"
)

// poolView and podView are what /pods shows. A value that is not known is left
// out; it is not 0.
type poolView struct {
	Name string    `json:"name"`
	Rung string    `json:"rung"` // how much is known of it, as in podstate.Rung
	Pods []podView `json:"pods"`
}

type podView struct {
	Name     string            `json:"name"`
	Address  string            `json:"address"`
	UID      string            `json:"uid,omitempty"`
	Labels   map[string]string `json:"labels,omitempty"`
	Engine   string            `json:"engine,omitempty"`
	Age      *float64          `json:"ageSeconds,omitempty"` // of reported; none before the first scrape
	Every    float64           `json:"everySeconds,omitempty"`
	Trust    float64           `json:"trust"`                 // in its gauges, 1 to 0
	Epoch    int               `json:"epoch"`                 // how often its counters, and with them its caches, began anew
	Out      string            `json:"out,omitempty"`         // why the pod is not picked
	Ramp     float64           `json:"ramp"`                  // share of its normal load that it should get
	Wait     *float64          `json:"waitSeconds,omitempty"` // until the prompts that it has are processed, predicted
	Speed    speedView         `json:"speed"`
	First    firstTokenView    `json:"firstTokenSeconds"`
	Charge   chargeView        `json:"charge"`
	Reported map[string]any    `json:"reported"`
}

// speedView is how fast a pod processes prompts, as learned.
type speedView struct {
	Step   *float64 `json:"stepSeconds,omitempty"`
	Token  *float64 `json:"tokenSeconds,omitempty"`  // uncached
	Square *float64 `json:"squareSeconds,omitempty"` // for each token of tokens² - cached²
}

// firstTokenView is when the first tokens of prompts that come now are predicted,
// in seconds, by the length of the prompt in tokens, of which none are cached.
type firstTokenView struct {
	Short  *float64 `json:"1000,omitempty"`
	Middle *float64 `json:"8000,omitempty"`
	Long   *float64 `json:"32000,omitempty"`
}

func viewFirstToken(c *podstate.Candidate) firstTokenView {
	after := func(tokens int) *float64 { return finite(replay.FirstToken(c, tokens, 0)) }
	return firstTokenView{after(1000), after(8000), after(32_000)}
}

type chargeView struct {
	Requests int     `json:"requests"` // sent and not ended
	Unseen   int     `json:"unseen"`   // those among them that the reported values cannot include
	Ahead    float64 `json:"aheadTokens"`
	Held     float64 `json:"heldTokens"`
}

func (s *Server) pods(w http.ResponseWriter, _ *http.Request) {
	now := s.cfg.Now()
	views := make([]poolView, 0, len(s.cfg.Pools))
	for _, pool := range s.cfg.Pools {
		cands := pool.Table.Snapshot(now)
		view := poolView{Name: pool.Name, Rung: podstate.RungOf(cands).String(), Pods: []podView{}}
		for _, c := range cands {
			view.Pods = append(view.Pods, viewPod(&c))
		}
		views = append(views, view)
	}
	replyJSON(w, struct {
		Time  time.Time  `json:"time"`
		Pools []poolView `json:"pools"`
	}{now, views})
}

func viewPod(c *podstate.Candidate) podView {
	v := podView{
		Name: c.Pod.Spec.Name, Address: c.Pod.Addr, UID: c.Pod.Spec.UID, Labels: c.Pod.Spec.Labels,
		Engine: c.Stats.Engine, Every: c.Stats.Every.Seconds(), Trust: c.Trust, Epoch: c.Stats.Epoch, Out: c.Health.Out, Ramp: c.Health.Ramp,
		Wait: finite(c.Wait), Speed: speedView{finite(c.Speed.Base), finite(c.Speed.Token), finite(c.Speed.Square)}, First: viewFirstToken(c),
		Age:      finite(c.Age),
		Charge:   chargeView{c.Charge.Requests, c.Unseen, c.Charge.Ahead, c.Charge.Held},
		Reported: map[string]any{},
	}
	st := c.Stats
	for _, f := range []struct {
		field podstate.Field
		name  string
		value any
	}{
		{podstate.FieldRunning, "running", st.Running},
		{podstate.FieldWaiting, "waiting", st.Waiting},
		{podstate.FieldDeferred, "deferred", st.Deferred},
		{podstate.FieldKVUsage, "kvUsage", st.KVUsage},
		{podstate.FieldKVUsage, "kvPeak", st.KVPeak},
		{podstate.FieldKVTokens, "kvTokens", st.KVTokens},
		{podstate.FieldBlockTokens, "blockTokens", st.BlockTokens},
		{podstate.FieldMaxRunning, "maxRunning", st.MaxRunning},
		{podstate.FieldMaxModelLen, "maxModelLen", st.MaxModelLen},
		{podstate.FieldLoad, "load", st.Load},
		{podstate.FieldPrefillTokens, "prefillTokens", st.PrefillTokens},
		{podstate.FieldModels, "models", st.Models},
		{podstate.FieldModels, "loadable", st.Loadable},
		{podstate.FieldAdapters, "adapters", st.Adapters},
		{podstate.FieldMaxAdapters, "maxAdapters", st.MaxAdapters},
		{podstate.FieldPrefixHits, "prefixQueries", st.PrefixQueries},
		{podstate.FieldPrefixHits, "prefixHits", st.PrefixHits},
		{podstate.FieldPromptTokens, "promptTokens", st.PromptTokens},
		{podstate.FieldGenerationTokens, "generationTokens", st.GenerationTokens},
		{podstate.FieldPreemptions, "preemptions", st.Preemptions},
		{podstate.FieldAsleep, "asleep", st.Asleep},
	} {
		if x, ok := f.value.(float64); st.Has(f.field) && (!ok || finite(x) != nil) {
			v.Reported[f.name] = f.value
		}
	}
	return v
}

// finite returns nil for what JSON cannot say.
func finite(x float64) *float64 {
	if math.IsInf(x, 0) || math.IsNaN(x) {
		return nil
	}
	return &x
}

// maxExposition bounds what is read from a pod. Expositions of 50 KB are usual;
// one per adapter and user label has been seen to reach megabytes.
const maxExposition = 64 << 20

// client returns one for a single request to a pod of the pool.
func (p *Pool) client() *http.Client {
	return &http.Client{
		Timeout: 10 * time.Second,
		// The pods' addresses are given by discovery, so a proxy of the
		// environment must not see them; and a pod must not send us elsewhere.
		Transport:     &http.Transport{Proxy: nil, DisableKeepAlives: true, TLSClientConfig: p.TLS},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// request returns one for the pod's metrics.
func (p *Pool) request(ctx context.Context, pod *podstate.Pod) (*http.Request, error) {
	addr := pod.Spec.Addr
	if p.Port != 0 {
		addr = netip.AddrPortFrom(addr.Addr(), p.Port)
	}
	scheme := "http"
	if p.TLS != nil {
		scheme = "https"
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, scheme+"://"+addr.String()+cmp.Or(p.Path, "/metrics"), nil)
	if err == nil && p.Token != "" {
		r.Header.Set("Authorization", "Bearer "+p.Token)
	}
	return r, err
}

// inspect shows what is read of a pod, and what is missing.
func (s *Server) inspect(w http.ResponseWriter, r *http.Request) {
	pool, pod, err := s.find(r.PathValue("id"))
	if err != nil {
		reply(w, http.StatusNotFound, err.Error()+"\n")
		return
	}
	report, err := pool.Inspect(r.Context(), pod.Spec.Addr)
	if err != nil {
		reply(w, http.StatusBadGateway, err.Error()+"\n")
		return
	}
	var text strings.Builder
	report.WriteTo(&text)
	reply(w, http.StatusOK, text.String())
}

// podMetrics shows all that a pod exposes, read at this moment, as JSON.
func (s *Server) podMetrics(w http.ResponseWriter, r *http.Request) {
	pool, pod, err := s.find(r.PathValue("id"))
	if err != nil {
		reply(w, http.StatusNotFound, err.Error()+"\n")
		return
	}
	req, err := pool.request(r.Context(), pod)
	if err != nil {
		reply(w, http.StatusInternalServerError, err.Error()+"\n")
		return
	}
	resp, err := pool.client().Do(req)
	if err != nil {
		reply(w, http.StatusBadGateway, err.Error()+"\n")
		return
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		reply(w, http.StatusBadGateway, fmt.Sprintf("%s answers %s; want 200\n", req.URL, resp.Status))
		return
	}
	families, err := read(io.LimitReader(resp.Body, maxExposition))
	if err != nil {
		reply(w, http.StatusBadGateway, fmt.Sprintf("%s: %v\n", req.URL, err))
		return
	}
	replyJSON(w, families)
}

// read parses with expfmt and not with prom2json.ParseReader, whose parser has no
// naming scheme set and panics with today's expfmt.
func read(body io.Reader) ([]*prom2json.Family, error) {
	parser := expfmt.NewTextParser(model.UTF8Validation)
	found, err := parser.TextToMetricFamilies(body)
	if err != nil {
		return nil, err
	}
	families := make([]*prom2json.Family, 0, len(found))
	for _, name := range slices.Sorted(maps.Keys(found)) {
		families = append(families, prom2json.NewFamily(found[name]))
	}
	return families, nil
}

// find returns the pod with this address or name, and its pool.
func (s *Server) find(id string) (pool *Pool, pod *podstate.Pod, err error) {
	for i := range s.cfg.Pools {
		for _, p := range s.cfg.Pools[i].Table.Pods() {
			switch {
			case p.Addr == id:
				return &s.cfg.Pools[i], p, nil
			case p.Spec.Name != id:
			case pod != nil:
				return nil, nil, fmt.Errorf("several pods are called %q, %s and %s among them; ask by address", id, pod.Addr, p.Addr)
			default:
				pool, pod = &s.cfg.Pools[i], p
			}
		}
	}
	if pod == nil {
		return nil, nil, fmt.Errorf("no pod has the address or name %q; GET /pods lists them", id)
	}
	return pool, pod, nil
}
