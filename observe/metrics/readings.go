package metrics

import (
	"iter"
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/farcall-dev/farcall/observe"
)

// Read lets each scrape read what source yields as well, such as the Readings of a Gateway. Those
// of the same metric and labels add up, also of several sources. Names that the table of metrics
// does not have are left out. source must be safe for concurrent use and must not block.
func (m *Metrics) Read(source iter.Seq[observe.Reading]) {
	m.sources.mu.Lock()
	defer m.sources.mu.Unlock()
	m.sources.all = append(m.sources.all, source)
}

// sources are the collector of the readings.
type sources struct {
	rows map[string]*measured // by name

	mu  sync.Mutex
	all []iter.Seq[observe.Reading]
}

// measured is a row of the readings.
type measured struct {
	metric

	desc *prometheus.Desc
}

// newSources makes the collector of the readings.
func newSources() *sources {
	s := &sources{rows: map[string]*measured{}}
	for _, row := range readings {
		s.rows[row.name] = &measured{row, prometheus.NewDesc(row.name, row.help, row.labels, nil)}
	}
	return s
}

// Describe implements prometheus.Collector.
func (s *sources) Describe(to chan<- *prometheus.Desc) {
	for _, row := range readings {
		to <- s.rows[row.name].desc
	}
}

// Collect implements prometheus.Collector.
func (s *sources) Collect(to chan<- prometheus.Metric) {
	s.mu.Lock()
	all := s.all
	s.mu.Unlock()
	sums := map[observe.Reading]float64{} // by what has no value
	for _, source := range all {
		for r := range source {
			value := r.Value
			r.Value = 0
			sums[r] += value
		}
	}
	for r, sum := range sums {
		row := s.rows[r.Name]
		if row == nil {
			continue
		}
		kind := prometheus.GaugeValue
		if row.kind == counter {
			kind = prometheus.CounterValue
		}
		to <- prometheus.MustNewConstMetric(row.desc, kind, sum,
			[]string{r.Upstream, r.State}[:len(row.labels)]...)
	}
}
