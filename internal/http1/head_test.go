package http1

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
)

// parts returns how a text may arrive: in pieces that end where cuts say.
func parts(text, cuts []byte) [][]byte {
	var list [][]byte
	for _, c := range cuts {
		n := min(int(c)+1, len(text))
		list, text = append(list, text[:n]), text[n:]
	}
	return append(list, text)
}

// parseParts parses what arrives in pieces, as a connection does.
func parseParts(h *head, pieces [][]byte) (v verdict, arrived []byte) {
	h.reset()
	for _, piece := range pieces {
		// Another array each time: positions must not depend on it.
		arrived = append(bytes.Clone(arrived), piece...)
		if v = h.parse(arrived); v != more {
			break
		}
	}
	return v, arrived
}

// same compares a head with what net/http reads.
func same(h *head, p []byte) error { return new(judge).same(h, p) }

// A judge compares many heads.
type judge struct {
	source bytes.Reader
	reader bufio.Reader
}

func (j *judge) same(h *head, p []byte) error {
	j.source.Reset(p)
	j.reader.Reset(&j.source)
	req, err := http.ReadRequest(&j.reader)
	if err != nil {
		return err
	}
	header := http.Header{}
	for i, f := range h.fields {
		if i != h.host {
			key := canonical(f.name.of(p))
			header[key] = append(header[key], string(f.value.of(p)))
		}
	}
	target := string(h.target.of(p))
	u := urlOf(target)
	switch {
	case req.Method != http.MethodPost, req.Proto != "HTTP/1.1", req.Close,
		len(req.TransferEncoding) > 0, req.Trailer != nil:
		return errors.New("net/http reads another kind of request")
	case req.RequestURI != target, *req.URL != u:
		return errors.New("the target is " + req.RequestURI)
	case req.Host != string(h.fields[h.host].value.of(p)):
		return errors.New("the host is " + req.Host)
	case req.ContentLength != h.length:
		return errors.New("the length differs")
	case !maps.EqualFunc(req.Header, header, slices.Equal[[]string]):
		return errors.New("the fields differ")
	}
	body, err := io.ReadAll(req.Body)
	rest := p[h.end:]
	if mine := rest[:min(int64(len(rest)), h.length)]; !bytes.Equal(body, mine) {
		return errors.New("the body differs")
	}
	if complete := int64(len(rest)) >= h.length; complete != (err == nil) {
		return errors.New("the end of the body differs")
	}
	return nil
}

// FuzzHead compares what is ours, in any split, with what net/http reads.
func FuzzHead(f *testing.F) {
	for _, v := range vectors {
		if len(v.text) < 4<<10 {
			f.Add([]byte(v.text), []byte{})
			f.Add([]byte(v.text), []byte{10, 0, 7, 30})
		}
	}
	f.Fuzz(func(t *testing.T, text, cuts []byte) {
		var h, whole head
		v, arrived := parseParts(&h, parts(text, cuts))
		if at, _ := parseParts(&whole, [][]byte{text}); at != v {
			t.Fatalf("in pieces %v, as a whole %v", v, at)
		}
		if v != ours {
			return
		}
		if h.end != whole.end || h.end > len(arrived) ||
			!bytes.HasSuffix(text[:h.end], []byte("\r\n\r\n")) {
			t.Fatalf("the head ends at %d, as a whole at %d", h.end, whole.end)
		}
		if err := same(&h, text); err != nil {
			t.Fatal(err)
		}
	})
}

func TestVectors(t *testing.T) {
	for _, v := range vectors {
		t.Run(v.name, func(t *testing.T) {
			var h head
			at, _ := parseParts(&h, [][]byte{[]byte(v.text)})
			if (at == ours) != v.ours || at == more {
				t.Fatalf("the verdict is %v", at)
			}
			if at == ours {
				if err := same(&h, []byte(v.text)); err != nil {
					t.Fatal(err)
				}
			}
			if len(v.text) > 4<<10 {
				return
			}
			each := make([]byte, len(v.text)) // byte by byte
			if in, _ := parseParts(&h, parts([]byte(v.text), each)); in != at {
				t.Fatalf("byte by byte the verdict is %v", in)
			}
		})
	}
}

// TestHeadLimits tries heads at the limits and beyond.
func TestHeadLimits(t *testing.T) {
	pad := func(size int) string {
		text := post(cl5, "X: \r\n")
		return post(cl5, "X: "+strings.Repeat("a", size-len(text))+"\r\n")
	}
	path := func(size int) string {
		return "POST /" + strings.Repeat("a", size-1) + " HTTP/1.1\r\nHost: a\r\n" + cl5 + "\r\n"
	}
	for _, c := range []struct {
		name, text string
		want       verdict
	}{
		{"head", pad(maxHead), ours},
		{"head and a byte", pad(maxHead + 1), foreign},
		{"head without an end", pad(maxHead + 10)[:maxHead], foreign},
		{"head that may still end", pad(maxHead + 10)[:maxHead-1], more},
		{"fields", post(cl5, strings.Repeat("X: 1\r\n", maxFields-2)), ours},
		{"fields and one", post(cl5, strings.Repeat("X: 1\r\n", maxFields-1)), foreign},
		{"target", path(maxTarget), ours},
		{"target and a byte", path(maxTarget + 1), foreign},
		{"digits", post("Content-Length: " + strings.Repeat("9", maxDigits) + "\r\n"), ours},
		{"digits and one", post("Content-Length: " + strings.Repeat("9", maxDigits+1) + "\r\n"), foreign},
	} {
		var h head
		if got, _ := parseParts(&h, [][]byte{[]byte(c.text)}); got != c.want {
			t.Errorf("%s: the verdict is %v, not %v", c.name, got, c.want)
		}
	}
}

// TestNames: what is in the table is canonical, so that it never hides a field.
func TestNames(t *testing.T) {
	for raw, known := range names {
		if want := http.CanonicalHeaderKey(raw); known.text != want {
			t.Errorf("%s: %s, not %s", raw, known.text, want)
		}
		if r, ok := roleOf([]byte(strings.ToUpper(raw))); !ok || r != known.role || len(raw) > maxName {
			t.Errorf("%s in upper case has another role", raw)
		}
	}
}
