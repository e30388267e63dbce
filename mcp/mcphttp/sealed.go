package mcphttp

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"net/http"
	"net/url"
	"sync"
	"time"

	"github.com/farcall-dev/farcall/internal/backoff"
	"github.com/farcall-dev/farcall/internal/onhttp"
	"github.com/farcall-dev/farcall/internal/owner"
	"github.com/farcall-dev/farcall/internal/scan"
	"github.com/farcall-dev/farcall/internal/seal"
	"github.com/farcall-dev/farcall/internal/share"
	"github.com/farcall-dev/farcall/jsonrpc"
	"github.com/farcall-dev/farcall/mcp/era"
)

// The values of Options.Sessions.
const (
	sessionsMemory = "memory"
	sessionsSealed = "sealed"
	sessionsNone   = "none"
)

const (
	// sealedLinger is how long a session with an id that says all of it stays in memory after
	// its last use: its client may come back for the rest of a broken stream.
	sealedLinger = time.Minute
	// maxSealedID bounds the id of a session: proxies have as little as 8 KB for a
	// header, and Node.js 16 KB for all headers of a request.
	maxSealedID = 4096
	// maxSealedText bounds what it says.
	maxSealedText = maxSealedID/4*3 - 64
	// maxQuestionID bounds the id of a question.
	maxQuestionID = 1024
	// maxAddress bounds the address of a client in an id, and that of a replica.
	maxAddress = 256
)

// sealing makes the ids from which any replica can go on with a session.
//
//	id of a session:  issued, key, client's address, revision, the backend's state; bound to the principal
//	id of a question: its number, the replica that asks and its address; bound to the session
type sealing struct {
	ids, questions *seal.Box
	age            time.Duration // negative: for ever
	replica        string        // random: names this handler
	advertise      string        // where other replicas reach it; "": nowhere
	forwards       http.Client   // carries answers to other replicas
	ended          ended
}

func newSealing(o *Options) (*sealing, error) {
	z := &sealing{age: o.SessionAge, replica: cmp.Or(o.Replica, rand.Text())}
	var err error
	if z.ids, err = seal.New(o.Keys, "session"); err != nil {
		return nil, fmt.Errorf("Options.Keys: %w", err)
	}
	if z.questions, err = seal.New(o.Keys, "question"); err != nil {
		return nil, fmt.Errorf("Options.Keys: %w", err)
	}
	if z.advertise, err = originOf(o.Advertise); err != nil {
		return nil, err
	}
	z.forwards = http.Client{
		Timeout:       forwardTimeout,
		Transport:     &http.Transport{MaxIdleConnsPerHost: 16, IdleConnTimeout: forwardTimeout},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	z.ended.init(o.MaxSessions)
	return z, nil
}

// originOf checks the address of a replica.
func originOf(text string) (string, error) {
	if text == "" {
		return "", nil
	}
	u, err := url.Parse(text)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.User != nil ||
		len(text) > maxAddress ||
		u.Path != "" && u.Path != "/" || u.RawQuery != "" || u.Fragment != "" {
		return "", fmt.Errorf("Options.Advertise is %q; it must be a scheme and a host, as "+
			"http://10.0.0.3:7331", text)
	}
	return u.Scheme + "://" + u.Host, nil
}

// until returns when what was issued at a time expires.
func (z *sealing) until(issued time.Time) time.Time {
	if z.age < 0 {
		return time.UnixMilli(math.MaxInt64)
	}
	return issued.Add(z.age)
}

// A sealedSession is what the id of a session says.
type sealedSession struct {
	issued       time.Time
	key, address string
	rev          *era.Revision
	state        []byte // the backend's
}

// sealID returns the id of a session of a principal.
func (z *sealing) sealID(v *sealedSession, principal owner.Key) (string, error) {
	text := binary.BigEndian.AppendUint64(nil, uint64(v.issued.UnixMilli()))
	for _, part := range [...]string{v.key, v.address, v.rev.Name} {
		text = append(binary.AppendUvarint(text, uint64(len(part))), part...)
	}
	if most := maxSealedText - len(text); len(v.state) > most {
		return "", fmt.Errorf(
			"mcphttp: the state of the session has %d bytes; at most %d fit into its id", len(v.state), most)
	}
	return z.ids.Seal(append(text, v.state...), principal.Text(), z.until(v.issued)), nil
}

var errNoSession = errors.New("mcphttp: no such session")

// openID returns what sealID was given. Anything else is no session: what was changed, what another
// principal was given, what has expired, and what its client has ended here.
func (z *sealing) openID(id string, principal owner.Key) (*sealedSession, error) {
	if len(id) > maxSealedID {
		return nil, errNoSession
	}
	text, err := z.ids.Open(id, principal.Text(), maxSealedText)
	if err != nil || len(text) < 8 {
		return nil, errNoSession
	}
	v := &sealedSession{issued: time.UnixMilli(int64(binary.BigEndian.Uint64(text)))}
	text = text[8:]
	var rev string
	for _, part := range [...]*string{&v.key, &v.address, &rev} {
		n, size := binary.Uvarint(text)
		if size <= 0 || n > uint64(len(text)-size) {
			return nil, errNoSession
		}
		*part = string(text[size : size+int(n)])
		text = text[size+int(n):]
	}
	v.rev, v.state = era.Lookup(rev), text
	if v.rev == nil || !time.Now().Before(z.until(v.issued)) || z.ended.has(v.key) {
		return nil, errNoSession
	}
	return v, nil
}

// A questionID is what the id of a question says.
type questionID struct {
	n                uint64
	replica, address string
}

// sealQuestion returns the id of question n of a session.
func (z *sealing) sealQuestion(session string, n uint64) jsonrpc.ID {
	text := binary.AppendUvarint(nil, n)
	text = append(append(text, z.replica...), z.advertise...)
	return jsonrpc.StringID(z.questions.Seal(text, session, z.until(time.Now())))
}

// openQuestion returns what sealQuestion was given. It reports false for anything else.
func (z *sealing) openQuestion(session, id string) (q questionID, ok bool) {
	if len(id) > maxQuestionID {
		return q, false
	}
	text, err := z.questions.Open(id, session, maxQuestionID)
	if err != nil {
		return q, false
	}
	n, size := binary.Uvarint(text)
	if size <= 0 || len(text)-size < len(z.replica) {
		return q, false
	}
	text = text[size:]
	return questionID{n, string(text[:len(z.replica)]), string(text[len(z.replica):])}, true
}

// ended remembers the sessions that clients have ended here, until they would expire. Other
// replicas do not hear of it.
type ended struct {
	mu       sync.Mutex
	sessions *share.Table[string, time.Time] // by key: until when
}

func (e *ended) init(limit int) {
	e.sessions = share.NewTable[string, time.Time](share.Bounds{Total: limit})
}

func (e *ended) add(o owner.Key, key string, until time.Time) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for {
		k, expired, ok := e.sessions.Oldest()
		if !ok || time.Now().Before(expired) {
			break
		}
		e.sessions.Remove(k)
	}
	e.sessions.Put(o.Group(), key, until, 1)
}

func (e *ended) has(key string) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	_, _, ok := e.sessions.Get(key)
	return ok
}

// assumed is the revision of a request that stands alone and does not say which it is (2025-06-18,
// Streamable HTTP, "Protocol Version Header"): the newest one that need not.
func assumed() *era.Revision {
	var newest *era.Revision
	for _, r := range era.Revisions() {
		if r.StreamableHTTP && !r.VersionHeader {
			newest = r
		}
	}
	return newest
}

const (
	// forwardTimeout bounds how long another replica may take for an answer that is forwarded to it.
	forwardTimeout = 10 * time.Second
	// handTime is how long an answer waits for a replica that is not reached: in that time it is found
	// to be gone, or is there again. handPause is between two attempts.
	handTime, handPause = 13 * time.Second, 250 * time.Millisecond
	// headerForwarded marks what a replica has forwarded: it is not forwarded again. Its value is
	// sealed, so that a client cannot choose which replica answers.
	headerForwarded = "Farcall-Forwarded"
	markForwarded   = "forwarded\x00" // begins what the value is bound to
)

// forwarded reports whether a replica has forwarded a request.
func (h *Handler) forwarded(r *http.Request) bool {
	value := r.Header.Get(headerForwarded)
	if value == "" || h.sealed == nil {
		return false
	}
	_, err := h.sealed.questions.Open(value, markForwarded+r.Header.Get(headerSession), 0)
	return err == nil
}

// An elsewhere is an answer of the client to a question that another replica has asked.
type elsewhere struct {
	replica string
	address string // "": the other one has none
	frame   []byte // borrowed
}

// pass gives such answers to the replicas that have asked. The error says why one did not get
// there.
func (x *exchange) pass() (status int, e *jsonrpc.Error) {
	for _, one := range x.elsewhere {
		if status, e = x.passOne(one); e != nil {
			x.h.debug("an answer did not reach the replica that has asked", "error", e.Error(),
				"cause", e.Cause)
			return status, e
		}
	}
	return http.StatusAccepted, nil
}

func (x *exchange) passOne(one elsewhere) (status int, e *jsonrpc.Error) {
	if x.h.opts.Forward != nil && x.hand(one) {
		return http.StatusAccepted, nil
	}
	switch {
	case x.h.forwarded(x.req):
		return http.StatusMisdirectedRequest, &jsonrpc.Error{
			Code:    jsonrpc.InvalidRequest,
			Message: "Misdirected: the replica that has asked this is gone; call again",
		}
	case one.address == "":
		return http.StatusMisdirectedRequest, &jsonrpc.Error{
			Code: jsonrpc.InvalidRequest,
			Message: "Misdirected: another replica has asked this, and it advertises no address; " +
				"configure one for each replica, or route all requests of a session to one replica",
		}
	}
	if err := x.forward(one); err != nil {
		return http.StatusBadGateway, &jsonrpc.Error{
			Code:    jsonrpc.InvalidRequest,
			Message: "the replica that has asked this does not take the answer; call again", Cause: err,
		}
	}
	return http.StatusAccepted, nil
}

// hand gives an answer to the replica that has asked. It reports false when that does not take it.
// One that is not reached may have ended: then its call has ended, too, and the answer is dropped,
// as one that matches no call. Some clients end their session when an answer is refused.
func (x *exchange) hand(one elsewhere) bool {
	for end := time.Now().Add(handTime); ; {
		got := &outcome{header: http.Header{}}
		_, _, err := x.h.opts.Forward(got, x.req, one.replica, one.frame) // twice does no harm
		switch {
		case err == nil:
			return got.code/100 == 2
		case !time.Now().Before(end):
			return false
		}
		//nolint:forbidigo // where that replica is does not depend on how this request came
		if x.h.opts.Route(context.Background(), one.replica, "") == "" {
			x.h.debug("dropped an answer: the replica that has asked is gone", "replica", one.replica)
			return true
		}
		select {
		case <-time.After(handPause):
		case <-x.req.Context().Done():
			return false
		}
	}
}

// forward sends an answer to another replica as its client has sent it here: with all headers,
// because the other one authenticates the client again, and with the name of the host. The address
// comes from a sealed id: a replica has written it.
func (x *exchange) forward(one elsewhere) error {
	from, err := url.ParseRequestURI(x.req.RequestURI)
	if err != nil {
		return err
	}
	to := one.address +
		(&url.URL{Path: from.Path, RawPath: from.RawPath, RawQuery: from.RawQuery}).RequestURI()
	// Some clients cancel this request as soon as the other replica has answered the call.
	ctx := context.WithoutCancel(x.req.Context())
	// it may be read on when the answer is there
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, to,
		bytes.NewReader(bytes.Clone(one.frame)))
	if err != nil {
		return err
	}
	r.Host, r.Header = x.req.Host, x.req.Header.Clone()
	onhttp.DropOwn(r.Header)
	r.Header.Del("Content-Encoding") // the frame is as it was read
	z := x.h.sealed
	r.Header.Set(headerForwarded,
		z.questions.Seal(nil, markForwarded+r.Header.Get(headerSession), z.until(time.Now())))
	resp, err := z.forwards.Do(r)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode/100 != 2 {
		return fmt.Errorf("mcphttp: %s answers %s", one.address, resp.Status)
	}
	return nil
}

// isSealed reports whether any replica can go on with the session.
func (s *session) isSealed() bool { return s.h.opts.Sessions == sessionsSealed && s.only == nil }

// named reports whether the session has the id that the client gets: that of a sealed one is made
// when initialize has been handled.
func (s *session) named() bool {
	if !s.isSealed() {
		return true
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.movable.from != nil
}

// Sealed returns a text that names the session at all replicas, and when it ends. "": it is one of
// this process.
func (s *session) Sealed() (id string, until time.Time) {
	if !s.isSealed() {
		return "", time.Time{}
	}
	issued := time.Now()
	s.mu.Lock()
	if s.movable.from != nil {
		issued = s.movable.from.issued
	}
	s.mu.Unlock()
	return s.key, s.h.sealed.until(issued)
}

// seal makes the id of a session that has begun.
func (s *session) seal() error {
	b, ok := s.backend.(Resumable)
	if !ok {
		return errors.New("mcphttp: the backend's session is not Resumable, as sealed sessions must be")
	}
	state, err := b.State()
	if err != nil {
		return err
	}
	v := &sealedSession{
		issued: time.Now(), key: s.key, address: s.movable.address, rev: b.Revision(),
		state: state,
	}
	id, err := s.h.sealed.sealID(v, s.principal())
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.movable.id = s.h.opts.Replica + id
	v.state = nil
	s.movable.from = v
	return nil
}

// take makes the backend's half of the session: a new one, or that of a session that goes on here.
func (s *session) take(ctx context.Context) Session {
	if s.movable == nil || s.movable.from == nil {
		return s.h.backend.Accept(ctx, s)
	}
	b, err := s.h.backend.(Resumer).Resume(ctx, s, s.movable.from.rev, s.movable.from.state) //nolint:errcheck // NewHandler has checked it
	s.movable.from.state = nil
	if err != nil {
		s.h.debug("a session cannot go on here", "error", err)
		return nil
	}
	return b
}

// lookup returns the session of a request, for a user who puts it back; nil: there is none. full:
// there is no room for it in memory. rev is the revision that the request says, or what is to be
// taken for it.
func (h *Handler) lookup(r *http.Request, rev *era.Revision) (s *session, full bool) {
	ids, principal := r.Header[headerSession], h.principal(r)
	if h.opts.Sessions == sessionsNone {
		s = h.newSession(r)
		s.owner = owner.Or(principal, owner.Address(r.RemoteAddr))
		s.movable.from = &sealedSession{rev: rev, key: s.key}
		return h.resume(r, s)
	}
	if len(ids) != 1 {
		return nil, false
	}
	if h.sealed == nil {
		return h.table.get(ids[0], principal), false
	}
	_, id := h.homeOf(ids[0])
	v, err := h.sealed.openID(id, principal)
	if err != nil {
		return nil, false
	}
	s = &session{h: h, key: v.key, movable: &movable{id: ids[0], from: v, address: v.address}}
	s.owner = owner.Or(principal, owner.Session(v.key, v.address))
	return h.resume(r, s)
}

// resume returns the session in the table that has the key of s, which is s where there was none.
func (h *Handler) resume(r *http.Request, mine *session) (*session, bool) {
	s, evicted, ok := h.table.open(mine)
	for _, e := range evicted {
		e.end()
	}
	if !ok {
		return nil, true
	}
	if s.accept(r.Context()) != nil {
		h.table.put(s)
		if h.table.remove(s) {
			s.end()
		}
		return nil, false
	}
	if s == mine {
		h.again(r, s)
	}
	return s, false
}

// What a replica has stored that is gone is asked for so often, with such pauses: a store may need
// some seconds to do without that one.
const (
	storeTries = 40
	storePause = 500 * time.Millisecond
)

// again makes requests again that the client has made at another replica. They are none that it
// waits for: what comes of them it has heard.
func (h *Handler) again(r *http.Request, s *session) {
	s.mu.Lock()
	b, ok := s.backend.(interface {
		Again() (requests [][]byte, err error)
		MadeAgain()
	})
	s.mu.Unlock()
	if !ok || !s.isSealed() || !h.table.hold(s) {
		return
	}
	h.active.Add(1)
	ctx := context.WithoutCancel(contextOf(r))
	go func() {
		defer h.leave()
		defer h.table.put(s)
		defer b.MadeAgain()
		requests, err := b.Again()
		for n := 1; err != nil && n < storeTries && !h.draining.Load(); n++ {
			_ = backoff.Sleep(ctx, storePause) // the context has no end
			requests, err = b.Again()
		}
		if err != nil {
			h.debug("what a client has asked of another replica is not known", "error", err)
		}
		for _, request := range requests {
			x := &exchange{h: h, req: r, session: s, stream: &stream{s: s}}
			x.derive(ctx)
			h.calls.Respond(x, nil, request, nil)
		}
	}()
}

// local reports whether the session has something that no other process has, so that it is kept
// here while its client is away.
func (s *session) local() bool {
	s.mu.Lock()
	busy, backend := s.closed || s.calls != nil, s.backend
	if p := s.pushes; p != nil {
		busy = busy || p.pending != nil || p.unread
	}
	s.mu.Unlock()
	b, ok := backend.(Resumable)
	return busy || ok && b.Local()
}

// missed notes that the client has not got what was sent, and may come back for it.
func (s *session) missed() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.pushingLocked().unread = true
}

// question returns the number of the call that an answer is for, and whether it is one of ours.
// Answers to questions of other replicas are noted in x.
func (s *session) question(x *exchange, m *jsonrpc.Message) (n uint64, here bool) {
	if !s.isSealed() {
		n, _ = m.ID.Uint()
		return n, true
	}
	raw := m.ID.Raw()
	if len(raw) < 2 || raw[0] != '"' {
		return 0, true
	}
	q, ok := s.h.sealed.openQuestion(s.key, string(scan.Unquote(raw)))
	if !ok || q.replica == s.h.sealed.replica {
		return q.n, true
	}
	x.elsewhere = append(x.elsewhere, elsewhere{q.replica, q.address, m.Raw})
	return 0, false
}

// streamTime is how long a request that needs the client's own stream waits for it: clients open it
// when they begin, while they send other requests.
const streamTime = 2 * time.Second

var errStreamElsewhere = &jsonrpc.Error{
	Code: jsonrpc.InvalidRequest,
	Message: "Invalid Request: notifications of this session would have to go out on its event " +
		"stream, which is not open at this replica; " +
		"open it with GET, and have all requests of a session routed to one replica",
}

// AwaitStream waits until the client has its own event stream open here. It fails when that takes
// too long: the stream may be at another replica. Sessions that stay in one process do without.
func (s *session) AwaitStream(ctx context.Context) error {
	if s.h.sealed == nil || s.only != nil {
		return nil
	}
	s.mu.Lock()
	p := s.pushingLocked()
	for _, st := range p.own {
		if st.connected.Load() {
			s.mu.Unlock()
			return nil
		}
	}
	if p.opened == nil {
		p.opened = make(chan struct{})
	}
	opened := p.opened
	s.mu.Unlock()
	limit := time.NewTimer(streamTime)
	defer limit.Stop()
	select {
	case <-opened:
		return nil
	case <-limit.C:
		return errStreamElsewhere
	case <-ctx.Done():
		return ctx.Err()
	}
}
