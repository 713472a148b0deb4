package extproc

import (
	"cmp"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/warmpath/warmpath/podstate"
)

// metrics of the server. The label pool is a name from the configuration, or
// empty when no pool was found; all other labels are fixed words.
type metrics struct {
	streams   prometheus.Gauge
	decision  prometheus.Histogram
	decisions *prometheus.CounterVec // pool, reason
	responses *prometheus.CounterVec // pool, class

	rungs *rungs

	// By pool; the last one is for requests without one.
	pools []poolMetrics
}

// poolMetrics are one pool's, looked up once instead of for each request.
type poolMetrics struct {
	name      string
	picked    prometheus.Counter
	responses [6]prometheus.Counter // by the first digit of the status
	prompt    prometheus.Counter
	hit       prometheus.Counter

	firstToken prometheus.Observer
	broken     prometheus.Counter
}

func newMetrics(reg prometheus.Registerer, pools []Pool, observers []*observer) (*metrics, error) {
	m := &metrics{
		streams: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "warmpath_extproc_streams",
			Help: "HTTP requests that Envoy has open with this process.",
		}),
		decision: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name:    "warmpath_extproc_decision_seconds",
			Help:    "Time from the last byte that a decision needs to its answer.",
			Buckets: []float64{25e-6, 50e-6, 100e-6, 250e-6, 500e-6, 1e-3, 2.5e-3, 10e-3, 100e-3, 1},
		}),
		decisions: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "warmpath_extproc_decisions_total",
			Help: "Requests by what became of them: picked, abandoned, or why they were refused.",
		}, []string{"pool", "reason"}),
		responses: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "warmpath_extproc_responses_total",
			Help: "Responses that passed by, by class of status.",
		}, []string{"pool", "class"}),
		rungs: newRungs(pools),
	}
	prompt := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "warmpath_extproc_prompt_tokens_total",
		Help: "Prompt tokens of picked requests, estimated.",
	}, []string{"pool"})
	hit := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "warmpath_extproc_prefix_hit_tokens_total",
		Help: "Prompt tokens expected in the prefix cache of the picked pod, estimated.",
	}, []string{"pool"})
	firstToken := prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name:    "warmpath_extproc_first_token_seconds",
		Help:    "Time from the decision to the first token, of streams of which it was seen.",
		Buckets: []float64{.01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 120},
	}, []string{"pool"})
	broken := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "warmpath_extproc_broken_responses_total",
		Help: "Responses that had status 200 and told of an error.",
	}, []string{"pool"})

	for i := range len(pools) + 1 {
		var p poolMetrics
		if i < len(pools) {
			p.name = pools[i].Name
			p.prompt = prompt.WithLabelValues(p.name)
			p.hit = hit.WithLabelValues(p.name)
			p.firstToken = firstToken.WithLabelValues(p.name)
			p.broken = broken.WithLabelValues(p.name)
		}
		p.picked = m.decisions.WithLabelValues(p.name, string(picked))
		for class := range p.responses {
			p.responses[class] = m.responses.WithLabelValues(p.name, [...]string{"other", "1xx", "2xx", "3xx", "4xx", "5xx"}[class])
		}
		m.pools = append(m.pools, p)
	}
	for _, c := range []prometheus.Collector{m.streams, m.decision, m.decisions, m.responses, prompt, hit,
		firstToken, broken, newInflight(pools), newTold(pools, observers), m.rungs} {
		if err := reg.Register(c); err != nil {
			return nil, err
		}
	}
	return m, nil
}

func (m *metrics) pool(i int) *poolMetrics {
	if i < 0 {
		i = len(m.pools) - 1
	}
	return &m.pools[i]
}

func (m *metrics) decided(pool int, r reason) {
	if p := m.pool(pool); r == picked {
		p.picked.Inc()
	} else {
		m.decisions.WithLabelValues(p.name, string(r)).Inc()
	}
}

func (m *metrics) tokens(pool, prompt, hit int) {
	p := m.pool(pool)
	p.prompt.Add(float64(prompt))
	p.hit.Add(float64(hit))
}

func (m *metrics) responded(pool, status int) {
	class := status / 100
	if class < 0 || class > 5 {
		class = 0
	}
	m.pool(pool).responses[class].Inc()
}

// inflight reads the tables and indexes when the metrics are read, so that
// requests do not pay for it, and pods that have left disappear.
type inflight struct {
	pools []Pool
	desc  *prometheus.Desc
	index *prometheus.Desc
	pods  *prometheus.Desc
}

func newInflight(pools []Pool) *inflight {
	return &inflight{pools, prometheus.NewDesc("warmpath_extproc_inflight_requests",
		"Requests that were sent to a pod and have not ended.", []string{"pool", "pod"}, nil),
		prometheus.NewDesc("warmpath_extproc_prefix_index_bytes",
			"Memory of the index of prefixes that pods are expected to have cached.", []string{"pool"}, nil),
		prometheus.NewDesc("warmpath_extproc_pods",
			"Pods of the pool by state: in, ejected, probing, down, asleep.", []string{"pool", "state"}, nil)}
}

func (c *inflight) Describe(ch chan<- *prometheus.Desc) {
	ch <- c.desc
	ch <- c.index
	ch <- c.pods
}

func (c *inflight) Collect(ch chan<- prometheus.Metric) {
	for _, p := range c.pools {
		ch <- prometheus.MustNewConstMetric(c.index, prometheus.GaugeValue, float64(p.Index.Bytes()), p.Name)
		for state, n := range p.Table.States(time.Now()) {
			ch <- prometheus.MustNewConstMetric(c.pods, prometheus.GaugeValue, float64(n), p.Name, state)
		}
		for _, cand := range p.Table.Snapshot(time.Now()) {
			ch <- prometheus.MustNewConstMetric(c.desc, prometheus.GaugeValue, float64(cand.Charge.Requests), p.Name, podName(cand.Pod))
		}
	}
}

func podName(p *podstate.Pod) string { return cmp.Or(p.Spec.Name, p.Addr) }

// told shows what responses have told, when the metrics are read.
type told struct {
	pools            []Pool
	observers        []*observer
	text             *prometheus.Desc
	expected, cached *prometheus.Desc
}

func newTold(pools []Pool, observers []*observer) *told {
	pod := []string{"pool", "pod"}
	return &told{pools, observers,
		prometheus.NewDesc("warmpath_extproc_bytes_per_token",
			"Text of prompts for each of their tokens, as responses have told.", []string{"pool"}, nil),
		prometheus.NewDesc("warmpath_extproc_cached_tokens_expected_total",
			"Prompt tokens expected in the prefix cache of the pod, of responses that told how many were.", pod, nil),
		prometheus.NewDesc("warmpath_extproc_cached_tokens_actual_total",
			"Prompt tokens that those responses found there.", pod, nil),
	}
}

func (t *told) Describe(ch chan<- *prometheus.Desc) {
	ch <- t.text
	ch <- t.expected
	ch <- t.cached
}

func (t *told) Collect(ch chan<- prometheus.Metric) {
	for i, p := range t.pools {
		truth := &t.observers[i].truth
		ch <- prometheus.MustNewConstMetric(t.text, prometheus.GaugeValue, truth.now().text, p.Name)
		for _, pod := range p.Table.Pods() {
			expected, found := truth.cachedBy(pod)
			ch <- prometheus.MustNewConstMetric(t.expected, prometheus.CounterValue, expected, p.Name, podName(pod))
			ch <- prometheus.MustNewConstMetric(t.cached, prometheus.CounterValue, found, p.Name, podName(pod))
		}
	}
}
