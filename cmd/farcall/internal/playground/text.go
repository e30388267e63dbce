package playground

import (
	"bytes"
	"container/list"
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
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
	farcall.HandleStream(mux, "paritosh/stream", characters,
		"Give a message back one character at a time")
	farcall.Handle(mux, "ai/generate", generate,
		"Stand in for a language model",
		"A prompt of more than 4000 characters is refused with -32602, and max_tokens beyond 4096 fails with -32603, each with data that a program can act on.")
	farcall.Handle(mux, "continueChat", s.continueChat,
		"Continue a conversation",
		"The protocol has no sessions: the session is found by a parameter. The latest 1000 are remembered.")
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
	words := strings.Fields(fmt.Sprintf("Generated text for a prompt of %d characters. No model is attached.", n))
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
		UserID: p.UserID,
		Name:   fmt.Sprintf("User %d", p.UserID),
		Email:  fmt.Sprintf("user%d@example.com", p.UserID),
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
	farcall.Handle(mux, "update", nothing, "Take anything and do nothing, as in the examples of the specification")
	farcall.Handle(mux, "notify_hello", nothing, "Take a notification, as in the examples of the specification")
	farcall.Handle(mux, "notify_sum", nothing, "Take a notification, as in the examples of the specification")
	farcall.Handle(mux, "get_data", getData, "Give a word and a number, as in the examples of the specification")
	farcall.Handle(mux, "sleep", sleep,
		"Wait, tell the progress, and stop when the call is cancelled")
	farcall.Handle(mux, "fail", fail,
		"Fail in a chosen way",
		"error is an application error, internal an error with a cause that stays in the log, and panic a panic in the handler. The others are application errors with their own codes.")
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
	return none{}, invalid("kind", "must be error, panic, internal, validation, permission, timeout or dependency")
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
