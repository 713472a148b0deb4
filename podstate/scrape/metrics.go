package scrape

import (
	"math"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/warmpath/warmpath/podstate"
)

// Metrics are what the scrapers of a process tell about themselves.
type Metrics struct {
	results  *prometheus.CounterVec   // pool, outcome
	seconds  *prometheus.HistogramVec // pool
	bytes    *prometheus.CounterVec   // pool
	badLines *prometheus.CounterVec   // pool
	oldest   *prometheus.Desc         // pool

	mu     sync.Mutex
	tables map[string]*podstate.Table // by pool
}

// NewMetrics registers the metrics.
func NewMetrics(reg prometheus.Registerer) (*Metrics, error) {
	pool := []string{"pool"}
	m := &Metrics{
		results: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "warmpath_scrape_results_total",
			Help: "Scrapes of pods by outcome: ok, status (not 200), empty (no known series), too_large, timeout, unreachable.",
		}, []string{"pool", "outcome"}),
		seconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "warmpath_scrape_duration_seconds",
			Help:    "Time that scrapes took, failed ones included.",
			Buckets: []float64{.0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5},
		}, pool),
		bytes: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "warmpath_scrape_read_bytes_total",
			Help: "Bytes of pods' answers, after decompression.",
		}, pool),
		badLines: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "warmpath_scrape_bad_lines_total",
			Help: "Lines of wanted series that could not be read.",
		}, pool),
		oldest: prometheus.NewDesc("warmpath_scrape_oldest_age_seconds",
			"Age of the oldest stats of any pod; pods that were never scraped successfully are not counted.", pool, nil),
		tables: map[string]*podstate.Table{},
	}
	for _, c := range []prometheus.Collector{m.results, m.seconds, m.bytes, m.badLines, m} {
		if err := reg.Register(c); err != nil {
			return nil, err
		}
	}
	return m, nil
}

// Describe implements prometheus.Collector for the age.
func (m *Metrics) Describe(ch chan<- *prometheus.Desc) { ch <- m.oldest }

// Collect implements prometheus.Collector for the age.
func (m *Metrics) Collect(ch chan<- prometheus.Metric) {
	m.mu.Lock()
	defer m.mu.Unlock()
	now := time.Now()
	for pool, table := range m.tables {
		oldest := 0.0
		for _, c := range table.Snapshot(now) {
			if !math.IsInf(c.Age, 1) {
				oldest = max(oldest, c.Age)
			}
		}
		ch <- prometheus.MustNewConstMetric(m.oldest, prometheus.GaugeValue, oldest, pool)
	}
}

func (m *Metrics) observe(pool, outcome string, took time.Duration, bytes, bad int) {
	m.results.WithLabelValues(pool, outcome).Inc()
	m.seconds.WithLabelValues(pool).Observe(took.Seconds())
	m.bytes.WithLabelValues(pool).Add(float64(bytes))
	m.badLines.WithLabelValues(pool).Add(float64(bad))
}

// watch begins and forget ends the series of a pool.
func (m *Metrics) watch(pool string, t *podstate.Table) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.tables[pool] = t
}

func (m *Metrics) forget(pool string, t *podstate.Table) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.tables[pool] != t { // a newer config has a pool of the same name
		return
	}
	delete(m.tables, pool)
	labels := prometheus.Labels{"pool": pool}
	m.results.DeletePartialMatch(labels)
	m.seconds.DeletePartialMatch(labels)
	m.bytes.DeletePartialMatch(labels)
	m.badLines.DeletePartialMatch(labels)
}
