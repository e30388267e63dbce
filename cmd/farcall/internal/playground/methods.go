package playground

import (
	"bytes"
	"cmp"
	"container/list"
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"math"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/farcall-dev/farcall"
	"github.com/farcall-dev/farcall/jsonrpc"
)

const (
	maxPrompt   = 4000 // characters
	maxTokens   = 4096 // of ai/generate
	maxSessions = 1000 // that continueChat remembers
	maxKept     = 200  // characters that a session keeps of the last input
	streamDelay = 20 * time.Millisecond
)

type message struct {
	Message string `json:"message" doc:"any text"`
}

// prompt has no limits in its tags: generate answers with its own errors.
type prompt struct {
	Prompt    string `json:"prompt" doc:"at most 4000 characters"`
	MaxTokens int    `json:"max_tokens,omitzero" doc:"at most 4096"`
}

type chatInput struct {
	SessionID string `json:"session_id" doc:"any name; the same one continues the conversation" min:"1" max:"128"`
	Input     string `json:"input" doc:"what you say" max:"4000"`
}

type chatReply struct {
	SessionID string `json:"session_id"`
	Turn      int    `json:"turn"`
	Reply     string `json:"reply"`
}

type session struct {
	id   string
	turn int
	last string
}

type userID struct {
	UserID int64 `json:"user_id" doc:"a positive number" min:"1"`
}

type userProfile struct {
	UserID int64  `json:"user_id"`
	Name   string `json:"name"`
	Email  string `json:"email"`
}

func (s *Service) registerText(mux *farcall.Mux) {
	farcall.Handle(mux, "paritosh/echo", func(_ context.Context, p message) (string, error) {
		return "[Paritosh] " + p.Message, nil
	}, "Echo a message behind a name")
	for _, name := range []string{"paritosh/stream", "text/stream"} {
		farcall.HandleStream(mux, name, characters, "Give a message back one character at a time")
	}
	mux.Hide("paritosh/echo", "paritosh/stream")
	farcall.Handle(mux, "ai/generate", generate,
		"Stand in for a language model",
		"A prompt of more than 4000 characters is refused with -32602, and max_tokens beyond 4096 "+
			"fails with -32603, each with data that a program can act on.")
	farcall.Handle(mux, "continueChat", s.continueChat,
		"Continue a conversation",
		"The protocol has no sessions: the session is found by a parameter. The latest 1000 are "+
			"remembered.")
	farcall.Handle(mux, "getUserProfile", getUserProfile, "Look up a user, without any state")
	farcall.Handle(mux, "logEvent", s.logEvent,
		"Write a message to the server's log",
		"The answer is how many events were logged so far.")
}

// characters gives the message one character at a time, as a model gives
// tokens.
func characters(ctx context.Context, p message) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		if utf8.RuneCountInString(p.Message) > maxPrompt {
			yield("", tooLong("Message too long"))
			return
		}
		tick := time.NewTicker(streamDelay)
		defer tick.Stop()
		for _, r := range p.Message {
			if !yield(string(r), nil) {
				return
			}
			select {
			case <-ctx.Done():
				yield("", ctx.Err())
				return
			case <-tick.C:
			}
		}
	}
}

// tooLong refuses a text of more than maxPrompt characters.
func tooLong(what string) error {
	return fault(jsonrpc.InvalidParams, "Invalid params", "details", what)
}

// generate stands in for a model: it fails as one does, and answers at once.
func generate(_ context.Context, p prompt) (string, error) {
	n := utf8.RuneCountInString(p.Prompt)
	switch {
	case n > maxPrompt:
		return "", tooLong("Prompt too long")
	case p.MaxTokens < 0 || p.MaxTokens > maxTokens:
		return "", &jsonrpc.Error{
			Code: jsonrpc.InternalError, Message: "LLM inference failed",
			Data: fmt.Appendf(nil, `{"reason":"max_tokens is out of range","max_tokens":%d}`, maxTokens),
		}
	}
	words := strings.Fields(
		fmt.Sprintf("Generated text for a prompt of %d characters. No model is attached.", n))
	if p.MaxTokens > 0 && p.MaxTokens < len(words) {
		words = words[:p.MaxTokens]
	}
	return strings.Join(words, " "), nil
}

// continueChat shows state that lives in the application and is found by a
// parameter: the protocol itself has none.
func (s *Service) continueChat(_ context.Context, p chatInput) (chatReply, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.sessionLocked(p.SessionID)
	c.turn++
	reply := fmt.Sprintf("You said %q.", p.Input)
	if c.turn > 1 {
		reply += fmt.Sprintf(" Before that you said %q.", c.last)
	}
	c.last = firstCharacters(p.Input, maxKept)
	return chatReply{SessionID: c.id, Turn: c.turn, Reply: reply}, nil
}

// sessionLocked finds or makes a session, and forgets the one that was unused
// the longest when there are too many.
func (s *Service) sessionLocked(id string) *session {
	if at, ok := s.sessions[id]; ok {
		s.recent.MoveToFront(at)
		return sessionAt(at)
	}
	for s.recent.Len() >= maxSessions {
		oldest := s.recent.Back()
		delete(s.sessions, sessionAt(oldest).id)
		s.recent.Remove(oldest)
	}
	c := &session{id: strings.Clone(id)}
	s.sessions[c.id] = s.recent.PushFront(c)
	return c
}

func sessionAt(e *list.Element) *session {
	c, _ := e.Value.(*session) // the list holds nothing else
	return c
}

func firstCharacters(text string, n int) string {
	for i := range text {
		if n == 0 {
			return strings.Clone(text[:i]) + "…"
		}
		n--
	}
	return strings.Clone(text)
}

func getUserProfile(_ context.Context, p userID) (userProfile, error) {
	return userProfile{
		UserID: p.UserID, Name: fmt.Sprintf("User %d", p.UserID),
		Email: fmt.Sprintf("user%d@example.com", p.UserID),
	}, nil
}

// logEvent answers how many events it has logged, so that the effect of a
// notification can be seen.
func (s *Service) logEvent(ctx context.Context, p message) (int, error) {
	s.mu.Lock()
	s.events++
	s.lastEvent = firstCharacters(p.Message, maxKept)
	n, server := s.events, s.mcp
	s.mu.Unlock()
	if server != nil {
		server.ResourceUpdated(eventsURI)
	}
	s.log.LogAttrs(ctx, slog.LevelInfo, "event",
		slog.Int("number", n), slog.String("message", firstCharacters(p.Message, maxPrompt)))
	return n, nil
}

type sleepParams struct {
	MS int `json:"ms" doc:"milliseconds" min:"0" max:"600000"`
}

type sleepProgress struct {
	MS int `json:"ms"`
	Of int `json:"of"`
}

type failParams struct {
	Kind string `json:"kind,omitzero" doc:"what goes wrong" enum:"error,panic,internal,validation,permission,timeout,dependency"`
}

type callbackParams struct {
	Method string      `json:"method" doc:"a method that the caller serves"`
	Params jsonrpc.Raw `json:"params,omitempty" doc:"an object or an array"`
}

func registerTools(mux *farcall.Mux) {
	farcall.Handle(mux, "echo", echo,
		"Give the params back, byte for byte",
		"Numbers keep their digits, strings their escapes, and white space its place.")
	farcall.Handle(mux, "update", nothing,
		"Take anything and do nothing, as in the examples of the specification")
	farcall.Handle(mux, "notify_hello", nothing,
		"Take a notification, as in the examples of the specification")
	farcall.Handle(mux, "notify_sum", nothing,
		"Take a notification, as in the examples of the specification")
	farcall.Handle(mux, "get_data", getData,
		"Give a word and a number, as in the examples of the specification")
	farcall.Handle(mux, "sleep", sleep, "Wait, tell the progress, and stop when the call is cancelled")
	farcall.Handle(mux, "fail", fail,
		"Fail in a chosen way",
		"error is an application error, internal an error with a cause that stays in the log, and "+
			"panic a panic in the handler. The others are application errors with their own codes.")
	farcall.Handle(mux, "callback", callback,
		"Call a method of the caller over the same connection, and give its answer back",
		"This needs a connection that goes both ways: WebSocket, TCP, a unix socket or stdio.")
}

func echo(_ context.Context, params jsonrpc.Raw) (jsonrpc.Raw, error) {
	return bytes.Clone(params), nil // the memory of the request ends with the handler
}

func getData(context.Context, none) ([]any, error) { return []any{"hello", 5}, nil }

// nothing takes any params and answers null.
func nothing(context.Context, jsonrpc.Raw) (none, error) { return none{}, nil }

// sleep reports its progress ten times, but not more often than every 10 ms
// and not more seldom than every second.
func sleep(ctx context.Context, p sleepParams) (sleepProgress, error) {
	step := min(max(p.MS/10, 10), 1000)
	for slept := 0; slept < p.MS; {
		next := min(step, p.MS-slept)
		timer := time.NewTimer(time.Duration(next) * time.Millisecond)
		select {
		case <-ctx.Done():
			timer.Stop()
			return sleepProgress{}, ctx.Err()
		case <-timer.C:
		}
		slept += next
		if err := farcall.Progress(ctx, sleepProgress{slept, p.MS}); err != nil {
			return sleepProgress{}, err
		}
	}
	return sleepProgress{p.MS, p.MS}, nil
}

func fail(_ context.Context, p failParams) (none, error) {
	switch p.Kind {
	case "", "error":
		return none{}, fault(errFailed, "Failed as asked", "kind", "error")
	case "panic":
		panic("playground: asked to panic") //nolint:forbidigo // it shows that a panic ends one call only
	case "internal":
		return none{}, errors.New("playground: a cause that stays in the log")
	case "validation":
		return none{}, fault(errValidation, "Invalid user data", "kind", p.Kind)
	case "permission":
		return none{}, fault(errPermission, "Unauthorized", "kind", p.Kind)
	case "timeout":
		return none{}, fault(errTimeout, "Request timeout", "kind", p.Kind)
	case "dependency":
		return none{}, fault(errDependency, "Upstream service failed", "kind", p.Kind)
	}
	return none{}, invalid("kind",
		"must be error, panic, internal, validation, permission, timeout or dependency")
}

func callback(ctx context.Context, p callbackParams) (jsonrpc.Raw, error) {
	var params any
	if len(p.Params) > 0 {
		params = p.Params
	}
	var answer jsonrpc.Raw
	err := farcall.CallerFrom(ctx).Call(ctx, p.Method, params, &answer)
	return answer, farcall.PassOn(err) // about the method that the caller has named
}

// The application errors of the playground. The numbers are its own choice
// from the range that JSON-RPC leaves to servers (section 5.1).
const (
	errFailed     jsonrpc.Code = -32000
	errValidation jsonrpc.Code = -32001
	errPermission jsonrpc.Code = -32002
	errTimeout    jsonrpc.Code = -32003
	errDependency jsonrpc.Code = -32004
)

// fault makes an error with the data that the caller may see: an object of the given
// names and texts.
func fault(code jsonrpc.Code, message string, data ...string) error {
	raw := jsonrpc.Raw{'{'}
	for i, text := range data {
		switch {
		case i%2 == 1:
			raw = append(raw, ':')
		case i > 0:
			raw = append(raw, ',')
		}
		raw = jsonrpc.AppendString(raw, text)
	}
	return &jsonrpc.Error{Code: code, Message: message, Data: append(raw, '}')}
}

// invalid refuses params that have the right type and a value the method
// cannot work with.
func invalid(member, reason string) error {
	return fault(errValidation, "Invalid user data", "member", member, "reason", reason)
}

// maxCount bounds how far math/add_stream counts.
const maxCount = 10_000

type pair struct {
	A float64 `json:"a" doc:"the first number"`
	B float64 `json:"b" doc:"the second number"`
}

type difference struct {
	Minuend    float64 `json:"minuend" doc:"what is subtracted from"`
	Subtrahend float64 `json:"subtrahend" doc:"what is subtracted"`
}

type root struct {
	X float64 `json:"x" doc:"a number that is not negative"`
}

func registerMath(mux *farcall.Mux) {
	farcall.Handle(mux, "math/add", func(_ context.Context, p pair) (float64, error) {
		return finite(p.A + p.B)
	},
		"Add two numbers")
	farcall.Handle(mux, "math/subtract", func(_ context.Context, p pair) (float64, error) {
		return finite(p.A - p.B)
	},
		"Subtract b from a")
	farcall.Handle(mux, "math/multiply", func(_ context.Context, p pair) (float64, error) {
		return finite(p.A * p.B)
	},
		"Multiply two numbers")
	farcall.Handle(mux, "math/sqrt", sqrt,
		"Take the square root",
		"A negative number is refused with the application error -32001.")
	farcall.HandleStream(mux, "math/add_stream", addStream,
		"Count from 0 to a + b",
		"The sum must be a whole number from 0 to 10000.")
	farcall.Handle(mux, "subtract", subtract, "Subtract, as in the examples of the specification")
	farcall.Handle(mux, "sum", sum, "Add any number of numbers, given by position")
}

// finite refuses a result that JSON cannot express.
func finite(v float64) (float64, error) {
	if math.IsInf(v, 0) || math.IsNaN(v) {
		return 0, invalid("result", "is beyond the range of a 64-bit float")
	}
	return v, nil
}

func subtract(_ context.Context, p difference) (float64, error) {
	return finite(p.Minuend - p.Subtrahend)
}

func sqrt(_ context.Context, p root) (float64, error) {
	if p.X < 0 {
		return 0, invalid("x", "must not be negative")
	}
	return math.Sqrt(p.X), nil
}

func addStream(ctx context.Context, p pair) iter.Seq2[int, error] {
	return func(yield func(int, error) bool) {
		result := p.A + p.B
		if result != math.Trunc(result) || result < 0 || result > maxCount {
			yield(0, invalid("result", "a + b must be a whole number from 0 to 10000, to be counted to"))
			return
		}
		for i := range int(result) + 1 {
			if err := ctx.Err(); err != nil {
				yield(0, err)
				return
			}
			if !yield(i, nil) {
				return
			}
		}
	}
}

func sum(_ context.Context, numbers []float64) (float64, error) {
	total := 0.0
	for _, n := range numbers {
		total += n
	}
	return finite(total)
}

const (
	defaultInterval = time.Second
	maxClocks       = 1000 // of all connections together
)

type clockParams struct {
	IntervalMS int `json:"interval_ms,omitzero" doc:"milliseconds between two ticks; 1000 when left out" min:"10" max:"3600000"`
	Count      int `json:"count,omitzero" doc:"how many ticks; without end when left out" min:"0"`
}

type clockStarted struct {
	Subscription int64 `json:"subscription"`
	IntervalMS   int   `json:"interval_ms"`
	Count        int   `json:"count,omitzero"`
}

type clockRef struct {
	Subscription int64 `json:"subscription" doc:"the number that clock/subscribe answered"`
}

type tick struct {
	Subscription int64     `json:"subscription"`
	Tick         int       `json:"tick"`
	Time         time.Time `json:"time"`
}

type clock struct {
	id       int64
	conn     farcall.Caller
	interval time.Duration
	count    int
	stop     context.CancelFunc
}

func (s *Service) registerClock(mux *farcall.Mux) {
	farcall.Handle(mux, "clock/subscribe", s.subscribe,
		"Push onTick notifications until the connection ends",
		"This needs a connection that goes both ways: WebSocket, TCP, a unix socket or stdio.")
	farcall.Handle(mux, "clock/unsubscribe", s.unsubscribe,
		"Stop a clock",
		"The answer is whether there was one.")
}

func (s *Service) subscribe(ctx context.Context, p clockParams) (clockStarted, error) {
	interval := time.Duration(p.IntervalMS) * time.Millisecond
	if p.IntervalMS == 0 {
		interval = defaultInterval
	}
	conn := farcall.CallerFrom(ctx)
	if conn.Done() == nil {
		return clockStarted{}, farcall.ErrNoCallback
	}
	//nolint:forbidigo // not derived from the call's context: the clock outlives the call, and its memory
	clockCtx, stop := context.WithCancel(context.Background())
	c := &clock{conn: conn, interval: interval, count: p.Count, stop: stop}
	if !s.start(clockCtx, c) { //nolint:contextcheck // as above
		stop()
		return clockStarted{},
			fault(errFailed, "Too many clocks", "details", "Unsubscribe from one, or try again later.")
	}
	return clockStarted{
		Subscription: c.id, IntervalMS: int(interval / time.Millisecond),
		Count: c.count,
	}, nil
}

func (s *Service) start(ctx context.Context, c *clock) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed || len(s.clocks) >= maxClocks {
		return false
	}
	s.lastID++
	c.id = s.lastID
	s.clocks[c.id] = c
	s.wg.Go(func() {
		s.run(ctx, c)
		s.remove(c)
	})
	return true
}

// run pushes ticks until the count is reached, the subscription or the
// connection ends, or the service closes.
func (s *Service) run(ctx context.Context, c *clock) {
	ticker := time.NewTicker(c.interval)
	defer ticker.Stop()
	for n := 1; c.count == 0 || n <= c.count; n++ {
		select {
		case <-ctx.Done():
			return
		case <-c.conn.Done():
			return
		case <-s.quit:
			return
		case now := <-ticker.C:
			if c.conn.Notify(ctx, "onTick", tick{c.id, n, now.UTC().Truncate(time.Millisecond)}) != nil {
				return
			}
		}
	}
}

func (s *Service) remove(c *clock) {
	c.stop()
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.clocks, c.id)
}

// unsubscribe answers whether there was such a subscription. One connection
// cannot end another one's.
func (s *Service) unsubscribe(ctx context.Context, p clockRef) (bool, error) {
	conn := farcall.CallerFrom(ctx)
	if conn.Done() == nil {
		return false, farcall.ErrNoCallback
	}
	s.mu.Lock()
	c := s.clocks[p.Subscription]
	s.mu.Unlock()
	if c == nil || c.conn.Done() != conn.Done() {
		return false, nil
	}
	s.remove(c)
	return true, nil
}

// A moment is an event of time/ticks.
type moment struct {
	Tick int       `json:"tick"`
	Time time.Time `json:"time"`
}

// registerTicks adds what can be subscribed to.
func (s *Service) registerTicks(mux *farcall.Mux) {
	farcall.HandleSubscription(mux, "time/ticks", s.ticks,
		"Get the time, again and again",
		"Subscribe with time/subscribe and [\"ticks\", {\"interval_ms\": 1000}] over WebSocket, TCP, a "+
			"unix socket or stdio; or stream it.")
}

func (s *Service) ticks(ctx context.Context, p clockParams) (iter.Seq2[moment, error], error) {
	interval := cmp.Or(time.Duration(p.IntervalMS)*time.Millisecond, defaultInterval)
	return func(yield func(moment, error) bool) {
		ticker := time.NewTicker(interval)
		defer ticker.Stop()
		for n := 1; p.Count == 0 || n <= p.Count; n++ {
			select {
			case <-ctx.Done():
				return
			case <-s.quit:
				return
			case now := <-ticker.C:
				if !yield(moment{n, now.UTC().Truncate(time.Millisecond)}, nil) {
					return
				}
			}
		}
	}, nil
}
