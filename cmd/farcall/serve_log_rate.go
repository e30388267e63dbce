package main

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/farcall-dev/farcall/internal/owner"
	"github.com/farcall-dev/farcall/internal/share"
)

const (
	// maxLogName bounds what callers name in the log, in characters, and maxLogText every other text.
	maxLogName = 200
	maxLogText = 2000
)

// clipped bounds a text in the log, and says how much of it is missing.
func clipped(text string, most int) string {
	if len(text) <= most {
		return text
	}
	at := 0
	for range most {
		if at == len(text) {
			return text
		}
		_, n := utf8.DecodeRuneInString(text[at:])
		at += n
	}
	if at == len(text) {
		return text
	}
	return fmt.Sprintf("%s… (%d more bytes)", text[:at], len(text)-at)
}

// clipAttr bounds the texts of a record, but messages that were asked for, which are bounded
// themselves, and stacks.
func clipAttr(_ []string, a slog.Attr) slog.Attr {
	switch a.Key {
	case payloadRequest, payloadResponse, "stack":
		return a
	}
	switch a.Value.Kind() {
	case slog.KindString:
		a.Value = slog.StringValue(clipped(a.Value.String(), maxLogText))
	case slog.KindAny:
		if err, ok := a.Value.Any().(error); ok {
			a.Value = slog.StringValue(clipped(err.Error(), maxLogText))
		}
	}
	return a
}

// callerOf returns who has caused a line of the log; zero: farcall itself, or it is not known.
func callerOf(ctx context.Context) owner.Key {
	return owner.Or(owner.From(ctx), owner.ConnFrom(ctx).Owner)
}

// A paced handler bounds the lines of each second. Callers share them: each has at most as many as
// are left. Lines that no caller is known for are counted apart, so that callers do not silence
// farcall.
type paced struct {
	slog.Handler

	p *pace
}

type pace struct {
	out  slog.Handler // for the line about those left out
	most int

	mu      sync.Mutex
	began   time.Time // of this second
	callers *share.Ledger
	own     int
	left    int // out, since the last line about that
	timer   *time.Timer
}

// newPaced bounds the lines of a second; 0 bounds none.
func newPaced(h slog.Handler, most int) slog.Handler {
	if most == 0 {
		return h
	}
	return &paced{h, &pace{out: h, most: most}}
}

// Handle implements slog.Handler.
func (h *paced) Handle(ctx context.Context, r slog.Record) error {
	if !h.p.take(callerOf(ctx), r.Time) {
		return nil
	}
	return h.Handler.Handle(ctx, r)
}

// WithAttrs implements slog.Handler.
func (h *paced) WithAttrs(attrs []slog.Attr) slog.Handler {
	return &paced{h.Handler.WithAttrs(attrs), h.p}
}

// WithGroup implements slog.Handler.
func (h *paced) WithGroup(name string) slog.Handler { return &paced{h.Handler.WithGroup(name), h.p} }

// take reports whether there is room for a line.
func (p *pace) take(o owner.Key, now time.Time) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if since := now.Sub(p.began); since >= time.Second || since < -time.Second {
		p.tellLocked()
		p.began, p.own, p.callers = now, 0, share.NewLedger(share.Bounds{Total: p.most})
	}
	if o.IsZero() && p.own < p.most {
		p.own++
		return true
	}
	if !o.IsZero() && p.callers.Take(o, 1) {
		return true
	}
	if p.left++; p.timer == nil {
		p.timer = time.AfterFunc(time.Second, func() {
			p.mu.Lock()
			defer p.mu.Unlock()
			p.tellLocked()
		})
	}
	return false
}

// tellLocked writes how many lines were left out.
func (p *pace) tellLocked() {
	if p.timer != nil {
		p.timer.Stop()
		p.timer = nil
	}
	if p.left == 0 {
		return
	}
	r := slog.NewRecord(time.Now(), slog.LevelWarn, "lines of the log were left out: there were too many in a second", 0)
	r.AddAttrs(slog.Int("lines", p.left))
	p.left = 0
	_ = p.out.Handle(context.Background(), r) //nolint:forbidigo // the line is of no call
}
