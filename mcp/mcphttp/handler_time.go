package mcphttp

import (
	"io"
	"net/http"
	"time"
)

// secondOfBody are the bytes for which a body may take another second.
const secondOfBody = 100 << 10

// bounded is a body whose time is bounded already, by package guard. Asked, it leaves deadlines alone but for
// its own, and says whether that still stands.
type bounded interface{ Bounded() (stands bool) }

func isBounded(r *http.Request) bool {
	b, is := r.Body.(bounded)
	if is {
		b.Bounded()
	}
	return is
}

// hurry bounds how long the body of a request may take. It comes before anything is
// answered: net/http reads what is left of a body first. What is no connection takes no time.
func (h *Handler) hurry(w http.ResponseWriter, r *http.Request) {
	if h.opts.BodyTimeout > 0 && r.ContentLength != 0 && !isBounded(r) {
		_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(h.opts.BodyTimeout)) // not supported: then there is none
	}
}

// timedBody is a body that has begun with hurry.
type timedBody struct {
	r     io.Reader
	ctl   *http.ResponseController
	until time.Time
	left  int // bytes, until there is another second
}

func (h *Handler) timed(w http.ResponseWriter, r *http.Request) io.Reader {
	if h.opts.BodyTimeout <= 0 || isBounded(r) || r.ContentLength >= 0 && r.ContentLength <= secondOfBody {
		return r.Body
	}
	return &timedBody{r.Body, http.NewResponseController(w), time.Now().Add(h.opts.BodyTimeout), secondOfBody}
}

func (b *timedBody) Read(p []byte) (int, error) {
	n, err := b.r.Read(p)
	if b.left -= n; b.left <= 0 && err == nil {
		more := 1 - b.left/secondOfBody
		b.left += more * secondOfBody
		b.until = b.until.Add(time.Duration(more) * time.Second)
		_ = b.ctl.SetReadDeadline(b.until) // as in hurry
	}
	return n, err
}

// rest takes back what hurry has done: the body is there, and the connection may be silent
// while the answer is made.
func (h *Handler) rest(w http.ResponseWriter, r *http.Request) {
	if b, ok := r.Body.(bounded); ok && !b.Bounded() {
		return
	}
	if h.opts.BodyTimeout > 0 && r.ContentLength != 0 {
		_ = http.NewResponseController(w).SetReadDeadline(time.Time{}) // as above
	}
}

// soon gives the client sendTimeout to take what is written next. The server forgets it after the
// answer; until then part of that may be in a buffer.
func soon(w http.ResponseWriter) {
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(sendTimeout)) // not supported: then there is none
}

// answerNothing writes an answer without a body.
func answerNothing(w http.ResponseWriter, status int) {
	soon(w)
	w.WriteHeader(status)
}
