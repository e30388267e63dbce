package metrics

import (
	"compress/gzip"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/farcall-dev/farcall/observe"
)

func scraped(
	t *testing.T, m *Metrics, accept, encoding string,
) (*httptest.ResponseRecorder, string) {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/metrics", nil)
	r.Header.Set("Accept", accept)
	r.Header.Set("Accept-Encoding", encoding)
	w := httptest.NewRecorder()
	m.ServeHTTP(w, r)
	if w.Code != http.StatusOK {
		t.Fatalf("%d: %s", w.Code, w.Body)
	}
	if w.Header().Get("Content-Encoding") != "gzip" {
		return w, w.Body.String()
	}
	zip, err := gzip.NewReader(w.Body)
	if err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(zip)
	if err != nil {
		t.Fatal(err)
	}
	return w, string(text)
}

// families parses the text of a scrape as client_golang does.
func families(t *testing.T, text string) map[string]*dto.MetricFamily {
	t.Helper()
	p := expfmt.NewTextParser(model.UTF8Validation)
	all, err := p.TextToMetricFamilies(strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// counted are metrics with five tools.
func counted(t *testing.T) *Metrics {
	t.Helper()
	m := New(nil)
	o := m.Observer()
	for i, tool := range []string{"", "plain", `qu"o\te`, "li\nne", "ü"} {
		c := &observe.Call{
			MCP: true, Known: true, Method: "tools/call", Tool: tool, Revision: "r", Transport: "http",
		}
		for n := range 40 {
			o.Start(t.Context(), c)
			c.Took = time.Duration(i+1) * time.Millisecond << (n / 4)
			o.End(t.Context(), c)
		}
	}
	return m
}

// The series of calls, which are written here, say the same as those of client_golang.
func TestFamily(t *testing.T) {
	t.Parallel()
	m := counted(t)
	all := families(t, first(scraped(t, m, "text/plain", "")))
	native, err := m.registry.natives.Gather()
	if err != nil {
		t.Fatal(err)
	}
	series := 0
	for _, want := range native {
		got := map[string]*dto.Histogram{}
		for _, one := range all[want.GetName()].GetMetric() {
			got[labelled(one)] = one.GetHistogram()
		}
		for _, one := range want.GetMetric() {
			sameHistogram(t, labelled(one), got[labelled(one)], one.GetHistogram())
			series++
		}
	}
	if series != 5 {
		t.Errorf("%d series", series)
	}
}

func sameHistogram(t *testing.T, labels string, got, want *dto.Histogram) {
	t.Helper()
	text := func(h *dto.Histogram) (all string) {
		all = fmt.Sprintf("%d calls, %.6g s", h.GetSampleCount(), h.GetSampleSum())
		for i, b := range h.GetBucket() {
			if i < len(want.GetBucket()) {
				all += fmt.Sprintf("; %v: %d", b.GetUpperBound(), b.GetCumulativeCount())
			}
		}
		return all
	}
	if text(got) != text(want) {
		t.Errorf("%s:\n%s, want\n%s", labels, text(got), text(want))
	}
}

// The client chooses the format, the compression and the metrics.
func TestNegotiation(t *testing.T) {
	t.Parallel()
	m := counted(t)
	const open, proto = "application/openmetrics-text;version=1.0.0",
		"application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited"
	all := len(families(t, first(scraped(t, m, "text/plain", ""))))
	for _, row := range []struct{ accept, encoding, typ, zip string }{
		{"", "", "text/plain", ""},
		{"text/plain;version=0.0.4", "br, gzip;q=0.5", "text/plain", "gzip"},
		{"*/*", "gzip;q=0", "text/plain", ""},
		{open, "gzip", "application/openmetrics-text", "gzip"},
		{open + ",text/plain;q=0.5", "", "application/openmetrics-text", ""},
		{"text/html", "identity", "text/plain", ""},
		{proto, "", "application/vnd.google.protobuf", ""},
	} {
		w, text := scraped(t, m, row.accept, row.encoding)
		typ := w.Header().Get("Content-Type")
		if !strings.HasPrefix(typ, row.typ) || w.Header().Get("Content-Encoding") != row.zip {
			t.Errorf("%q, %q: %v", row.accept, row.encoding, w.Header())
		}
		ends := strings.HasSuffix(text, "\n# EOF\n") && strings.Count(text, "# EOF") == 1
		switch row.typ {
		case "text/plain":
			if got := len(families(t, text)); got != all {
				t.Errorf("%q: %d families of %d", row.accept, got, all)
			}
		case "application/openmetrics-text":
			if !ends || !strings.Contains(text, `le="1.0"} `) {
				t.Errorf("%q: %s", row.accept, text)
			}
		}
		if !strings.Contains(text, "mcp_server_operation_duration_seconds") {
			t.Errorf("%q: no calls in %s", row.accept, text)
		}
	}
	r := httptest.NewRequestWithContext(t.Context(), http.MethodGet,
		"/metrics?name[]=farcall_inflight", nil)
	w := httptest.NewRecorder()
	m.ServeHTTP(w, r)
	if got := families(t, w.Body.String()); len(got) != 1 || got["farcall_inflight"] == nil {
		t.Errorf("name[]: %s", w.Body)
	}
}

// A call in a trace that is recorded is the exemplar of its bucket, the first one of a second.
func TestExemplars(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m := New(nil)
		o := m.Observer()
		count := func(id byte, took time.Duration, sampled bool) {
			c := &observe.Call{
				MCP: true, Known: true, Method: "ping", Transport: "http",
				Span: observe.Span{Trace: [16]byte{id}, ID: [8]byte{id}, Sampled: sampled},
			}
			o.Start(t.Context(), c)
			c.Took = took
			o.End(t.Context(), c)
		}
		count(1, 30*time.Millisecond, false)
		count(2, 40*time.Millisecond, true)
		count(3, 45*time.Millisecond, true) // too early
		count(4, time.Hour, true)
		_, text := scraped(t, m, "application/openmetrics-text;version=1.0.0", "")
		var got []string
		for line := range strings.Lines(text) {
			if before, exemplar, found := strings.Cut(line, " # "); found {
				_, le, _ := strings.Cut(before, "le=")
				got = append(got, le+": "+strings.Join(strings.Fields(exemplar)[:2], " "))
			}
		}
		want := []string{
			`"0.05"} 3: {span_id="0200000000000000",trace_id="02000000000000000000000000000000"} 0.04`,
			`"+Inf"} 4: {span_id="0400000000000000",trace_id="04000000000000000000000000000000"} 3600`,
		}
		if !slices.Equal(got, want) {
			t.Errorf("%q, want %q", got, want)
		}
		<-time.After(exemplarAge)
		count(5, 45*time.Millisecond, true)
		_, text = scraped(t, m, "application/openmetrics-text;version=1.0.0", "")
		if !strings.Contains(text, "05000000") || strings.Contains(text, "02000000") {
			t.Errorf("the exemplar did not change: %s", text)
		}
		native, err := m.registry.natives.Gather()
		if err != nil {
			t.Fatal(err)
		}
		h := native[0].GetMetric()[0].GetHistogram()
		if len(h.GetExemplars()) == 0 || h.GetSampleCount() != 5 {
			t.Errorf("native: %v", h)
		}
		if text = first(scraped(t, m, "text/plain", "")); strings.Contains(text, "trace_id") {
			t.Error("exemplars in a format that has none")
		}
	})
}

// A name of a server's tool that is not UTF-8 is a label like others.
func TestInvalidText(t *testing.T) {
	t.Parallel()
	m := New(nil)
	o := m.Observer()
	c := &observe.Call{MCP: true, Known: true, Method: "tools/call", Tool: "a\xffb", Transport: "http"}
	o.End(o.Start(t.Context(), c), c)
	if _, text := scraped(t, m, "", ""); !strings.Contains(text, `gen_ai_tool_name="a`+"\uFFFD"+`b"`) {
		t.Error(text)
	}
}

// labelled returns the labels of a series.
func labelled(m *dto.Metric) string {
	var all []string
	for _, l := range m.GetLabel() {
		all = append(all, l.GetName()+"="+l.GetValue())
	}
	slices.Sort(all)
	return strings.Join(all, ",")
}

func first(_ *httptest.ResponseRecorder, text string) string { return text }
