// Package export answers one question: how do other tools read a capture?
package export

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"

	"github.com/farcall-dev/farcall/capture"
)

// Options adjust an export. Nil means the defaults.
type Options struct {
	// Filter selects frames. Nil: all.
	Filter *capture.Filter
	// URL is where the requests of curl go to. Default: the address that the capture has.
	URL string
}

// Formats returns the names of the formats: HAR 1.2 with _webSocketMessages, traces of OTLP in JSON
// (one request of the protocol a line), lines of curl and shell for each request, and pcapng with
// exported PDUs, which Wireshark reads.
func Formats() []string { return []string{"har", "otlp", "curl", "pcapng"} }

// A sink makes the text of one format in its buffer. Records and their bytes are
// valid until the next call.
type sink interface {
	// record takes a record that is not a frame.
	record(rec *capture.Record)
	// frame takes a frame; data is nil when the capture has no bytes of it.
	frame(rec *capture.Record, data []byte)
	// end adds what waits.
	end()
}

// buffered is how much text is written at once.
const buffered = 64 << 10

// Write reads a capture and writes it in a format. Memory is bounded: it depends on the calls that
// are in flight at one time, not on the size of the capture.
func Write(w io.Writer, r *capture.Reader, format string, o *Options) error {
	o = cmp.Or(o, &Options{})
	out := &bytes.Buffer{}
	var s sink
	switch format {
	case "har":
		s = newHAR(out)
	case "otlp":
		s = newOTLP(out)
	case "curl":
		s = &shell{out: out, url: o.URL, conns: conns{}}
	case "pcapng":
		s = &pcapng{out: out, conns: conns{}}
	default:
		return fmt.Errorf("there is no format %q", format)
	}
	for {
		rec, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err == nil {
			err = give(s, rec, o.Filter)
		}
		if err == nil && out.Len() >= buffered {
			_, err = out.WriteTo(w)
		}
		if err != nil {
			return err
		}
	}
	s.end()
	_, err := out.WriteTo(w)
	return err
}

func give(s sink, rec *capture.Record, filter *capture.Filter) error {
	if rec.Type != "frame" {
		s.record(rec)
		return nil
	}
	if !filter.Match(rec) {
		return nil
	}
	data, err := rec.Data()
	if err == nil {
		s.frame(rec, data)
	}
	return err
}

// maxConns bounds the connections that are known at one time.
const maxConns = 4096

// conns are what is known of connections.
type conns map[uint64]*capture.Record

// take notes what a record says of a connection.
func (c conns) take(rec *capture.Record) {
	switch {
	case rec.Type != "conn":
	case rec.Closed:
		delete(c, rec.Conn)
	default:
		if len(c) >= maxConns {
			clear(c) // the frames of those that live on are written without an address
		}
		c[rec.Conn] = rec.Clone()
	}
}

// of returns what is known of a connection; a record without a value when that is nothing.
func (c conns) of(number uint64) *capture.Record {
	if conn := c[number]; conn != nil {
		return conn
	}
	return &capture.Record{Conn: number}
}
