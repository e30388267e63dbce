package playground

import (
	"container/list"
	"context"
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
