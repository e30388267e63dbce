// Package metrics counts and times what an [observe.Observer] sees, for Prometheus.
//
//	m := metrics.New(nil)
//	mux := http.NewServeMux()
//	mux.Handle("/metrics", m)
//	rpc.ListenAndServe(ctx, handler, &rpc.ServeOptions{RPC: &farcall.Options{Observer: m.Observer()}})
//
// The names of calls are those of OpenTelemetry's conventions for MCP and RPC, such as
// mcp_server_operation_duration_seconds; others begin with farcall_. What is served at /metrics
// says what each is.
//
// # Labels
//
// No value of a label is chosen by the other end of a connection, who could otherwise make any
// number of series and fill the memory of this process and of Prometheus. Each comes from the
// configuration, from a protocol, or from what this end offers: the methods of a Mux, tools,
// prompts. Everything else is _OTHER. Each metric has at most [Options.MaxSeries] series, and one
// more for what exceeds them.
package metrics

import (
	"cmp"
	"context"
	"net/http"
	"runtime"
	"strings"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/farcall-dev/farcall/observe"
	"github.com/farcall-dev/farcall/observe/internal/words"
)

// Options adjust Metrics. The zero value, and nil, mean the defaults.
type Options struct {
	// Version is that of the program, for farcall_build_info. Default: none.
	Version string
	// MaxSeries bounds the series of each metric. What exceeds it is in a series with the labels
	// _OTHER and is counted by farcall_metrics_overflow_total. Default 5000.
	MaxSeries int
}

// Metrics is an http.Handler that answers with the metrics, in the formats of Prometheus. It asks
// for no credentials: guard it where it is mounted, since tools, upstreams and load are in it. Its
// methods may be called concurrently.
type Metrics struct {
	handler  http.Handler
	registry *registry
	codes    codes
	scrapes  chan struct{} // those that run
	size     atomic.Int64  // of the last one in a text format

	begun       [2]atomic.Uint64 // calls, by side
	mcp, rpc    [2]*bounded[callKey, *timed]
	sessions    [2]*bounded[pair, session]
	connections *bounded[text, prometheus.Gauge]
	streams     *bounded[text, prometheus.Gauge]
	frames      *bounded[text, *ways]
	bad         *bounded[pair, prometheus.Counter]
	refused     *bounded[pair, prometheus.Counter]
	dropped     *bounded[pair, prometheus.Counter]
	waits       *bounded[text, prometheus.Observer]
	childStarts *bounded[text, prometheus.Observer]
	suspensions *bounded[text, prometheus.Observer]
	translated  *bounded[pair, prometheus.Counter]
	decisions   *bounded[pair, prometheus.Counter]
	guard       *bounded[text, prometheus.Observer]
	stores      storeMetrics
	sources     *sources
}

// New returns metrics that nothing was counted in yet. They have their own registry, with the
// metrics of the Go runtime and of the process beside them.
func New(o *Options) *Metrics {
	var opts Options
	if o != nil {
		opts = *o
	}
	r := newRegistry(cmp.Or(opts.MaxSeries, 5000))
	m := &Metrics{registry: r, codes: codeTable(), scrapes: make(chan struct{}, maxScrapes)}
	for side, name := range sides {
		r.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: inFlight.name, Help: inFlight.help, ConstLabels: prometheus.Labels{labelSide: name},
		}, func() float64 { return m.inFlight(side) }))
	}
	m.mcp = [2]*bounded[callKey, *timed]{
		r.calls(mcpServer, callKey.ofMCP),
		r.calls(mcpClient, callKey.toMCP),
	}
	m.rpc = [2]*bounded[callKey, *timed]{
		r.calls(rpcServer, callKey.ofRPC),
		r.calls(rpcClient, callKey.toRPC),
	}
	m.sessions = r.sessions()
	m.connections = bound(r, connections, r.gauge(connections).WithLabelValues, text.values)
	m.streams = bound(r, streams, r.gauge(streams).WithLabelValues, text.values)
	m.frames = r.traffic()
	m.bad = bound(r, badFrames, r.counter(badFrames).WithLabelValues, pair.values)
	m.refused = bound(r, refused, r.counter(refused).WithLabelValues, pair.values)
	m.dropped = bound(r, droppedAnswers, r.counter(droppedAnswers).WithLabelValues, pair.values)
	m.waits = bound(r, queueWait, r.histogram(queueWait).WithLabelValues, text.values)
	m.childStarts = bound(r, childStart, r.histogram(childStart).WithLabelValues, text.values)
	m.suspensions = bound(r, suspensions, r.histogram(suspensions).WithLabelValues, text.values)
	m.translated = bound(r, translated, r.counter(translated).WithLabelValues, pair.values)
	m.decisions = bound(r, decisions, r.counter(decisions).WithLabelValues, pair.values)
	m.guard = bound(r, guardTime, r.histogram(guardTime).WithLabelValues, text.values)
	m.stores = r.stores()
	m.sources = newSources()
	r.MustRegister(m.sources)
	r.gauge(buildInfo).WithLabelValues(opts.Version, runtime.Version()).Set(1)
	r.MustRegister(collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	m.handler = promhttp.HandlerFor(m.Gatherer(), promhttp.HandlerOpts{EnableOpenMetrics: true})
	return m
}

// Gatherer returns what reads all metrics, for who hands them over in another way than Prometheus.
func (m *Metrics) Gatherer() prometheus.Gatherer {
	return prometheus.Gatherers{m.registry.natives, m.registry.Registry}
}

// inFlight returns how many calls of a side have begun and not ended. Those that have ended are in
// the families of that side, which are every second one: to count them apart costs each call more.
func (m *Metrics) inFlight(side int) float64 {
	ended := uint64(0)
	for i := side; i < len(m.registry.families); i += len(sides) {
		ended += m.registry.families[i].ended()
	}
	return float64(m.begun[side].Load() - ended)
}

// Observer returns the observer that counts. Use it once for each connection: joined with itself it
// counts twice.
func (m *Metrics) Observer() *observe.Observer {
	return &observe.Observer{
		Start: m.start, End: m.end, Refuse: m.refuse, Frame: m.frame, Bad: m.badFrame, Open: m.open,
		Close:  m.close,
		Decide: m.decide,
	}
}

// The sides that this end may have in a call, and their indexes.
var sides = [2]string{"server", "client"}

func side(outgoing bool) int {
	if outgoing {
		return 1
	}
	return 0
}

func (m *Metrics) start(ctx context.Context, c *observe.Call) context.Context {
	m.begun[side(c.Outgoing)].Add(1)
	return ctx
}

func (m *Metrics) end(_ context.Context, c *observe.Call) {
	at := side(c.Outgoing)
	k := callKey{
		method: words.Other, tool: c.Tool, prompt: c.Prompt, revision: c.Revision,
		transport: c.Transport,
	}
	if c.Known {
		k.method = c.Method
	}
	if c.Outgoing {
		k.upstream = c.Upstream
	}
	switch {
	case c.Code != 0:
		known := m.code(c)
		k.failure = known.name
		if known.refusal != "" && !c.Outgoing {
			m.refused.get(pair{known.refusal, c.Transport}).Inc()
		}
	case c.ToolError:
		k.failure = words.ToolError
	}
	if c.UpstreamRevision != "" && c.UpstreamRevision != c.Revision {
		m.translated.get(pair{c.Revision, c.UpstreamRevision}).Inc()
	}
	all := &m.rpc
	if c.MCP {
		all = &m.mcp
	}
	all[at].recent(&k, k.hint()).observe(c.Took, &c.Span)
}

func (m *Metrics) refuse(_ context.Context, c *observe.Call) {
	m.refused.get(pair{cmp.Or(m.code(c).refusal, words.Other), c.Transport}).Inc()
}

func (m *Metrics) frame(f observe.Frame) {
	k := text(f.Transport)
	ways := m.frames.recent(&k, uint32(len(k)))
	if f.Out {
		ways.out.observe(len(f.Data))
	} else {
		ways.in.observe(len(f.Data))
	}
}

func (m *Metrics) badFrame(f observe.Frame, problem string) {
	if kind, ok := strings.CutSuffix(problem, " answer"); ok {
		m.dropped.get(pair{kind, f.Transport}).Inc()
		return
	}
	m.bad.get(pair{problem, f.Transport}).Inc()
}

func (m *Metrics) open(l observe.Lifetime) { m.addOpen(l, 1) }

// addOpen adds to what is open.
func (m *Metrics) addOpen(l observe.Lifetime, n float64) {
	switch l.Kind {
	case observe.Connection:
		m.connections.get(text(l.Transport)).Add(n)
	case observe.Stream:
		m.streams.get(text(l.Transport)).Add(n)
	case observe.Session:
		m.sessions[side(l.Outgoing)].get(pair{l.Revision, l.Transport}).open.Add(n)
	}
}

func (m *Metrics) close(l observe.Lifetime) {
	m.addOpen(l, -1)
	switch l.Kind {
	case observe.Session:
		m.sessions[side(l.Outgoing)].get(pair{l.Revision, l.Transport}).took.Observe(l.Took.Seconds())
	case observe.Queue:
		m.waits.get(text(l.Upstream)).Observe(l.Took.Seconds())
	case observe.Suspension:
		m.suspensions.get(text(l.Upstream)).Observe(l.Took.Seconds())
	case observe.Child:
		m.childStarts.get(text(l.Upstream)).Observe(l.Took.Seconds())
	}
}

func (m *Metrics) decide(d observe.Decision) {
	m.decisions.get(pair{d.Outcome, d.Policy}).Inc()
	m.guard.get(text(d.Outcome)).Observe(d.Took.Seconds())
}
