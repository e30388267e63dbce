package metrics

import (
	"bytes"
	"compress/gzip"
	"io"
	"net/http"
	"strconv"
	"strings"

	"github.com/prometheus/common/expfmt"
)

// maxScrapes is how many scrapes may run at once.
const maxScrapes = 4

// ServeHTTP answers GET and HEAD with the metrics.
func (m *Metrics) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		w.Header().Set("Allow", "GET, HEAD")
		http.Error(w, "Metrics are read with GET.", http.StatusMethodNotAllowed)
		return
	}
	select {
	case m.scrapes <- struct{}{}:
		defer func() { <-m.scrapes }()
	default:
		http.Error(w, "Too many requests read the metrics now. Try again later.",
			http.StatusServiceUnavailable)
		return
	}
	format := expfmt.NegotiateAccept(r.Header, expfmt.DefaultOpenMetricsAcceptedFormats()...)
	switch kind := format.FormatType(); {
	case r.URL.Query().Has("name[]"): // some metrics, by their names
		m.handler.ServeHTTP(w, r)
	case kind == expfmt.TypeTextPlain || kind == expfmt.TypeOpenMetrics:
		m.serveText(w, r, format)
	default:
		m.handler.ServeHTTP(w, r)
	}
}

// serveText answers in one of the text formats.
func (m *Metrics) serveText(w http.ResponseWriter, r *http.Request, format expfmt.Format) {
	text, err := m.text(format)
	if err != nil {
		http.Error(w, "The metrics cannot be read: "+err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", string(format))
	w.Header().Add("Vary", "Accept")
	w.Header().Add("Vary", "Accept-Encoding")
	if !acceptsGzip(r.Header.Get("Accept-Encoding")) {
		_, _ = w.Write(text) //nolint:gosec // it is text/plain; an error: the client has gone
		return
	}
	w.Header().Set("Content-Encoding", "gzip")
	zip, _ := gzip.NewWriterLevel(w, gzip.BestSpeed) // the level exists
	_, _ = zip.Write(text)
	_ = zip.Close()
}

// text returns the metrics in a text format.
func (m *Metrics) text(format expfmt.Format) ([]byte, error) {
	openMetrics := format.FormatType() == expfmt.TypeOpenMetrics
	out := make([]byte, 0, m.size.Load()+m.size.Load()/8+1<<16)
	for _, f := range m.registry.families {
		out = f.appendTo(out, openMetrics)
	}
	gathered, err := m.registry.Gather()
	if err != nil {
		return nil, err
	}
	rest := bytes.NewBuffer(out)
	enc := expfmt.NewEncoder(rest, format)
	for _, f := range gathered {
		if err := enc.Encode(f); err != nil {
			return nil, err
		}
	}
	if end, ok := enc.(io.Closer); ok { // the last line of OpenMetrics
		if err := end.Close(); err != nil {
			return nil, err
		}
	}
	m.size.Store(int64(rest.Len()))
	return rest.Bytes(), nil
}

// acceptsGzip reports whether an Accept-Encoding lists gzip, without a quality of 0.
func acceptsGzip(header string) bool {
	for part := range strings.SplitSeq(header, ",") {
		name, quality, _ := strings.Cut(strings.TrimSpace(part), ";")
		if strings.TrimSpace(name) != "gzip" {
			continue
		}
		text, given := strings.CutPrefix(strings.ReplaceAll(quality, " ", ""), "q=")
		q, err := strconv.ParseFloat(text, 64)
		return !given || err == nil && q > 0
	}
	return false
}
