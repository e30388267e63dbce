// Package slow answers one question: how long may the other end take to send a frame
// or the body of a request, and to take its answer?
package slow

import (
	"io"
	"net/http"
	"time"
)

// AnswerTime is how long a client may take for each part of an answer.
const AnswerTime = 30 * time.Second

// secondOfBody are the bytes for which a body may take another second.
const secondOfBody = 100 << 10

// A Limit is how long the body of a request may take, and a second more for each
// 100 KB; 0 or less: as long as it likes. Where there is no connection there is no deadline.
type Limit time.Duration

// bounded is a body with a time that is bounded already, by package guard. Asked, it leaves
// deadlines alone but for its own, and says whether that still stands.
type bounded interface{ Bounded() (stands bool) }

func isBounded(r *http.Request) bool {
	b, is := r.Body.(bounded)
	if is {
		b.Bounded()
	}
	return is
}

// Begin bounds the body of a request. It comes before anything is answered: net/http reads what is
// left of a body first.
func (l Limit) Begin(w http.ResponseWriter, r *http.Request) {
	if l > 0 && r.ContentLength != 0 && !isBounded(r) {
		_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(time.Duration(l))) // not supported: then there is none
	}
}

// Body returns the body of a request that has begun.
func (l Limit) Body(w http.ResponseWriter, r *http.Request) io.Reader {
	if l <= 0 || isBounded(r) || r.ContentLength >= 0 && r.ContentLength <= secondOfBody {
		return r.Body
	}
	return &body{r.Body, http.NewResponseController(w), time.Now().Add(time.Duration(l)), secondOfBody}
}

type body struct {
	r     io.Reader
	ctl   *http.ResponseController
	until time.Time
	left  int // bytes, until there is another second
}

// Read moves the deadline as bytes arrive.
func (b *body) Read(p []byte) (int, error) {
	n, err := b.r.Read(p)
	if b.left -= n; b.left <= 0 && err == nil {
		more := 1 - b.left/secondOfBody
		b.left += more * secondOfBody
		b.until = b.until.Add(time.Duration(more) * time.Second)
		_ = b.ctl.SetReadDeadline(b.until) // as in Begin
	}
	return n, err
}

// End takes back what Begin has done: the body is there, and the connection may be silent
// while the answer is made.
func (l Limit) End(w http.ResponseWriter, r *http.Request) {
	if b, ok := r.Body.(bounded); ok && !b.Bounded() {
		return
	}
	if l > 0 && r.ContentLength != 0 {
		_ = http.NewResponseController(w).SetReadDeadline(time.Time{}) // as in Begin
	}
}

// Answer gives the client AnswerTime to take what is written next. The server forgets it after the
// answer; until then part of that may be in a buffer.
func Answer(w http.ResponseWriter) {
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(AnswerTime)) // not supported: then there is none
}

// AnswerNothing writes an answer without a body.
func AnswerNothing(w http.ResponseWriter, status int) {
	Answer(w)
	w.WriteHeader(status)
}
