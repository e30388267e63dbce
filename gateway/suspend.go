package gateway

import (
	"context"
	"crypto/rand"
	"errors"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/farcall-dev/farcall/gateway/internal/refs"
	"github.com/farcall-dev/farcall/gateway/internal/upstream"
	"github.com/farcall-dev/farcall/internal/jsonv2"
	"github.com/farcall-dev/farcall/internal/share"
	"github.com/farcall-dev/farcall/jsonrpc"
	"github.com/farcall-dev/farcall/mcp"
	"github.com/farcall-dev/farcall/mcp/era"
	"github.com/farcall-dev/farcall/mcp/relay"
	"github.com/farcall-dev/farcall/mcp/spec"
	"github.com/farcall-dev/farcall/observe"
)

// suspension has the calls of modern clients at legacy servers, which may ask for
// something on the way: then the client gets input_required, and its retry goes
// on with the call where it stands. What the client carries meanwhile is the id,
// sealed by mcp.Server, which binds it to principal, method and params.
type suspension struct {
	observer *observe.Observer // nil: there is none

	mu     sync.Mutex
	ttl    time.Duration
	calls  map[string]*suspended
	away   share.Ledger // those with a client that is away
	closed bool
	wg     sync.WaitGroup
}

func newSuspension(most int, ttl time.Duration) *suspension {
	t := &suspension{calls: map[string]*suspended{}}
	t.limit(most, ttl)
	return t
}

// limit sets the bounds again. Those who are away already keep the time that they
// were given.
func (t *suspension) limit(most int, ttl time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.ttl = ttl
	t.away.SetBounds(share.Bounds{Total: most, Owner: max(most/10, leastShare)})
}

// suspended is a call that goes on without its client's request.
type suspended struct {
	id     string
	table  *suspension
	server string // its name
	who    upstream.Caller
	kept   *keptTask
	refs   *refs.Server    // qualifies what the server says; nil: it is shown as it is
	ctx    context.Context //nolint:containedctx // ends with the call
	cancel context.CancelCauseFunc
	asked  chan struct{} // there is a question
	done   chan struct{} // closed when the call has ended
	result upstream.Result
	err    error

	mu        sync.Mutex
	client    context.Context //nolint:containedctx // of the request that waits; nil: the client is away
	keys      map[string]bool // of all questions so far
	fresh     bool            // the client has not been asked the newest question
	questions []*question     // without an answer
	expiry    *time.Timer     // while the client is away
	resumed   func()          // tells the observer that it is back; nil: there is none
}

// question is what a server asks during a call.
type question struct {
	key    string
	asking bool // a goroutine does, on behalf of a task
	method string
	params jsonrpc.Raw
	answer chan answer
}

type answer struct {
	raw jsonrpc.Raw
	err error
}

var (
	errGone = &jsonrpc.Error{
		Code: jsonrpc.InvalidParams,
		Message: "the call that requestState belongs to is over: " +
			"it was answered or given up, its time has passed, the gateway was restarted, or it waits at " +
			"another node; repeat the call without requestState",
	}
	errBusy = &jsonrpc.Error{
		Code: jsonrpc.InvalidRequest,
		Message: "another request is going on with the call that requestState belongs to; wait " +
			"for its answer",
	}

	errAway = errors.New("the client was asked and did not come back in time")
)

// begin starts a call and returns its id. The qualifier is that of the server, nil where references
// are shown as they are.
func (t *suspension) begin(
	ctx context.Context, u *upstream.Upstream, given *upstream.Call, kept *keptTask,
	qualifier *refs.Server,
) (string, error) {
	s := &suspended{
		kept: kept, id: rand.Text(), table: t, server: u.Name(),
		asked: make(chan struct{}, 1), done: make(chan struct{}), client: ctx,
	}
	call := *given
	call.Params = slices.Clone(call.Params) // the request's own do not last
	call.Caller.Info, call.Caller.Capabilities = slices.Clone(call.Caller.Info),
		slices.Clone(call.Caller.Capabilities)
	s.who, s.refs = call.Caller, qualifier
	call.Ask = askingOf(qualifier, s.ask)
	call.Notice, call.Tasks = s.notify, s
	if call.Progress != nil {
		call.Progress = func(ctx context.Context, params jsonrpc.Raw) {
			s.notify(ctx, spec.NotificationProgress, params)
		}
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return "", errDraining()
	}
	s.ctx, s.cancel = context.WithCancelCause(context.WithoutCancel(ctx))
	t.calls[s.id] = s
	t.wg.Go(func() {
		defer s.cancel(nil)
		s.result, s.err = u.Call(s.ctx, &call)
		if s.ctx.Err() != nil {
			s.err = context.Cause(s.ctx)
		}
		close(s.done)
	})
	return s.id, nil
}

// attach finds a call for a request that waits for it.
func (t *suspension) attach(ctx context.Context, id string) (*suspended, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	s := t.calls[id]
	if s == nil {
		return nil, errGone
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.client != nil && s.client != ctx { // which may have begun it
		return nil, errBusy
	}
	if s.expiry != nil {
		s.expiry.Stop()
		t.back(s)
	}
	s.client = ctx
	return s, nil
}

// detach lets the client go, to come back with answers.
func (t *suspension) detach(s *suspended) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.client = nil
	if t.closed || !t.away.Take(s.who.Owner, 1) {
		delete(t.calls, s.id)
		s.cancel(errAway)
		if t.closed {
			return errDraining()
		}
		return t.overloaded(
			"Overloaded: %d calls wait for their clients already, %d of them yours; answer what they ask, "+
				"or try again later",
			t.away.Used(), t.away.OfGroup(s.who.Owner))
	}
	s.expiry = time.AfterFunc(t.ttl, func() { t.expire(s) })
	s.resumed = t.observer.Begin(observe.Lifetime{Kind: observe.Suspension, Upstream: s.server})
	return nil
}

// leastShare is how many of the calls that wait one owner may have in any case; else it is a tenth.
const leastShare = 16

// overloaded is the error of a call that cannot wait for its client. A place is free again in
// a while at the latest.
func (t *suspension) overloaded(format string, all, own int) *jsonrpc.Error {
	e := jsonrpc.Errorf(jsonrpc.Overloaded, format, all, own)
	e.Data = strconv.AppendInt(jsonrpc.Raw(`{"retryable":true,"retryAfterMs":`),
		t.ttl.Milliseconds(), 10)
	e.Data = append(e.Data, '}')
	return e
}

// back notes that a call no longer waits for its client. Its locks are the caller's.
func (t *suspension) back(s *suspended) {
	t.away.Give(s.who.Owner, 1)
	s.expiry = nil
	if s.resumed != nil {
		s.resumed()
	}
}

// expire gives up a call with a client that has not come back.
func (t *suspension) expire(s *suspended) {
	t.mu.Lock()
	defer t.mu.Unlock()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.expiry == nil {
		return // it has come back after all
	}
	t.back(s)
	delete(t.calls, s.id)
	s.cancel(errAway)
}

// drop forgets a call, which has ended or is given up.
func (t *suspension) drop(s *suspended, cause error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.calls, s.id)
	s.cancel(cause)
}

// count returns how many calls wait for their clients.
func (t *suspension) count() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.away.Used()
}

// close gives up the calls with clients that are away and waits for all others, as
// long as the context lasts.
func (t *suspension) close(ctx context.Context) error {
	t.mu.Lock()
	t.closed = true
	for id, s := range t.calls {
		s.mu.Lock()
		if s.expiry != nil && s.expiry.Stop() {
			t.back(s)
			delete(t.calls, id)
			s.cancel(errAway)
		} else if slices.ContainsFunc(s.questions, func(q *question) bool { return q.asking }) {
			s.cancel(errDraining()) // the client of a task is away, too
		}
		s.mu.Unlock()
	}
	t.mu.Unlock()
	done := make(chan struct{})
	go func() {
		t.wg.Wait()
		close(done)
	}()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
	}
	t.mu.Lock()
	for _, s := range t.calls {
		s.cancel(ctx.Err())
	}
	t.mu.Unlock()
	<-done
	return ctx.Err()
}

// ask is called by the upstream, during the call, and waits for the answer.
func (s *suspended) ask(
	ctx context.Context, method string, params jsonrpc.Raw,
) (jsonrpc.Raw, error) {
	q := &question{method: method, params: slices.Clone(params), answer: make(chan answer, 1)}
	s.mu.Lock()
	q.key = s.newKey(relay.QuestionName(params))
	s.questions = append(s.questions, q)
	s.fresh = true
	s.mu.Unlock()
	select {
	case s.asked <- struct{}{}:
	default:
	}
	select {
	case a := <-q.answer:
		return a.raw, a.err
	case <-ctx.Done():
		s.remove(q)
		return nil, context.Cause(ctx)
	}
}

// newKey returns a key for a question: the name that the server has given to it,
// if there is one, by which the client may know it.
func (s *suspended) newKey(name string) string {
	key, n := name, 2
	if name == "" {
		name, n = "question", 1
	}
	for ; key == "" || s.keys[key]; n++ {
		key = name + "-" + strconv.Itoa(n)
	}
	if s.keys == nil {
		s.keys = map[string]bool{}
	}
	s.keys[key] = true
	return key
}

func (s *suspended) remove(q *question) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.questions = slices.DeleteFunc(s.questions, func(o *question) bool { return o == q })
}

func (s *suspended) reply(q *question, a answer) {
	s.remove(q)
	q.answer <- a
}

func (s *suspended) pending() []*question {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.questions)
}

// notify passes a notification on to the request that waits, if one does.
func (s *suspended) notify(_ context.Context, method string, params jsonrpc.Raw) {
	// A client that does not read holds up no other client.
	if client := s.waiting(); client != nil {
		// a client that is gone needs none
		_ = relay.Notify(client, method, s.refs.Down(refs.Params, method, params))
	}
}

// TaskStarted implements relay.TaskObserver: it makes the request that waits a task. One that has
// asked already stays what it is.
func (s *suspended) TaskStarted(id, created string) error {
	client := s.waiting()
	if client == nil {
		return nil
	}
	if err := s.kept.start(client, id, created); !errors.Is(err, mcp.ErrAsked) &&
		s.waiting() == client {
		return err
	}
	return nil
}

// LeavesTask implements relay.TaskObserver.
func (s *suspended) LeavesTask() bool { return s.kept.leave() }

// waiting returns the context of the request that waits, nil when none does.
func (s *suspended) waiting() context.Context {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.client
}

// wait waits for the end of the call on behalf of its client, and asks the client what
// the server asks. Without the end, its error is mcp.ErrAsked when the client is
// to come back.
func (s *suspended) wait(ctx context.Context) (result upstream.Result, ended bool, err error) {
	var asking sync.WaitGroup // on behalf of a task
	defer asking.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	for {
		select {
		case <-s.done:
			return s.result, true, s.err
		case <-ctx.Done():
			s.table.drop(s, context.Cause(ctx)) // the reason of the client
			return upstream.Result{}, false, ctx.Err()
		case <-s.asked:
		}
		if relay.TaskOf(ctx) == relay.IsTask {
			s.askTask(ctx, &asking)
			continue
		}
		s.gather(ctx)
		if err := s.askClient(ctx); err != nil {
			if full := s.table.detach(s); full != nil {
				err = full
			}
			return upstream.Result{}, false, err
		}
	}
}

// gatherTime is how long a new question waits for others that the server asks at
// the same time: the client can answer all of them in one round then.
const gatherTime = 20 * time.Millisecond

func (s *suspended) gather(ctx context.Context) {
	s.mu.Lock()
	fresh := s.fresh
	s.fresh = false
	s.mu.Unlock()
	if !fresh {
		return
	}
	timer := time.NewTimer(gatherTime)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-s.done:
	case <-ctx.Done():
	}
}

// askTask asks the client of a task everything that is new. Each answer comes when
// the client gives it.
func (s *suspended) askTask(ctx context.Context, asking *sync.WaitGroup) {
	for _, q := range s.newQuestions() {
		asking.Go(func() {
			var raw jsonrpc.Raw
			err := mcp.Ask(relay.Named(ctx, q.key), q.method, q.params, &raw)
			s.reply(q, answer{raw, err})
		})
	}
	s.table.mu.Lock()
	defer s.table.mu.Unlock()
	if s.table.closed {
		s.cancel(errDraining())
	}
}

// newQuestions returns those that a task has not asked yet, which it does now.
func (s *suspended) newQuestions() (all []*question) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, q := range s.questions {
		if !q.asking {
			q.asking = true
			all = append(all, q)
		}
	}
	return all
}

// askClient asks the client everything that has no answer. Its error is for the
// client: it has something to do before the call can go on.
func (s *suspended) askClient(ctx context.Context) (unanswered error) {
	for _, q := range s.pending() {
		var raw jsonrpc.Raw
		err := mcp.Ask(relay.Named(ctx, q.key), q.method, q.params, &raw)
		var wire *jsonrpc.Error
		switch {
		case err == nil:
			s.reply(q, answer{raw: raw})
		case errors.Is(err, mcp.ErrAsked), errors.As(err, &wire) && wire.Code == jsonrpc.InvalidParams:
			if unanswered == nil || !errors.Is(err, mcp.ErrAsked) {
				unanswered = err
			}
		default: // it cannot be asked; what that means is the server's to say
			s.reply(q, answer{err: err})
		}
	}
	if unanswered != nil {
		select {
		case s.asked <- struct{}{}: // for the request that comes back
		default:
		}
	}
	return unanswered
}

// resumable makes a call of a modern client at a legacy server.
func (e *endpoint) resumable(w *calling, u *upstream.Upstream) (result upstream.Result, err error) {
	ctx, call := context.Context(w), &w.Call
	t := e.g.suspended
	var earlier []*suspended // attempts that have ended with URLs to visit
	for n := 1; ; n++ {
		// The client carries the id in requestState, and cannot change it.
		id, err := mcp.Once(ctx, "call-"+strconv.Itoa(n), func() (string, error) {
			return t.begin(ctx, u, call, w.keep(), w.refs)
		})
		if err != nil {
			return upstream.Result{}, err
		}
		s, err := t.attach(ctx, id)
		if err != nil {
			return upstream.Result{}, err
		}
		result, ended, err := s.wait(ctx)
		if !ended {
			return result, err
		}
		earlier = append(earlier, s)
		agreed, asking := askToOpen(ctx, pagesOf(err, call.Revision))
		if !asking && !agreed {
			for _, s := range earlier {
				t.drop(s, nil)
			}
			return result, err
		}
		// The next request comes by here again.
		if full := t.detach(s); full != nil {
			return upstream.Result{}, full
		}
		if asking {
			return upstream.Result{}, mcp.ErrAsked
		}
	}
}

// pagesOf returns the URLs that the user has to open before the call can be
// made: a legacy server says so by an error, which the client's revision does not
// have (2025-11-25, Elicitation, "URL Elicitation Required Error").
func pagesOf(err error, rev *era.Revision) []jsonrpc.Raw {
	var wire *jsonrpc.Error
	if !errors.As(err, &wire) || wire.Code != spec.URLElicitationRequired ||
		rev.URLElicitationRequired == wire.Code {
		return nil
	}
	var data struct {
		Elicitations []jsonrpc.Raw `json:"elicitations"`
	}
	if jsonv2.Unmarshal(wire.Data, &data) != nil {
		return nil
	}
	return data.Elicitations
}

// askToOpen asks the user to open URLs. It reports whether the client is being asked,
// and whether the user has agreed to all of them.
func askToOpen(ctx context.Context, visits []jsonrpc.Raw) (agreed, asking bool) {
	agreed = len(visits) > 0
	for i, params := range visits {
		params = withMember(params, "mode", jsonrpc.AppendString(nil, spec.ElicitURL))
		params, err := era.Translate(era.Params, spec.MethodElicitationCreate, params, era.LatestLegacy(),
			era.Latest())
		var answer spec.ElicitResult
		if err == nil {
			err = mcp.Ask(relay.Named(ctx, "visit-"+strconv.Itoa(i+1)), spec.MethodElicitationCreate,
				params, &answer)
		}
		asking = asking || errors.Is(err, mcp.ErrAsked)
		agreed = agreed && err == nil && answer.Action == spec.ElicitAccept
	}
	return agreed, asking
}
