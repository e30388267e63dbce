// Package levels gives each component of a program its own log level, which can be changed while
// the program runs.
//
//	l := levels.New(levels.Standard()...)
//	if err := l.Set("warn,guard=debug"); err != nil { … }
//	log := slog.New(l.Handler(slog.NewTextHandler(os.Stderr, nil)))
//	log.With(levels.Key, "guard").Debug("this line is logged")
//
// A logger belongs to the component that its attribute [Key] names. A component without its own
// level has the base level.
package levels

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
)

// Key is the attribute of a logger that names its component.
const Key = "component"

// Default stands for a level in [Levels.Set]: the component has the base level again.
const Default = "default"

// names are the levels that can be set, from the most to the fewest lines.
var names = []struct {
	name  string
	level slog.Level
}{
	{"debug", slog.LevelDebug},
	{"info", slog.LevelInfo},
	{"warn", slog.LevelWarn},
	{"error", slog.LevelError},
}

// Levels are the levels of the components of one program. Its methods may be called concurrently.
type Levels struct {
	base       slog.LevelVar
	components map[string]*slog.LevelVar // its keys do not change

	mu  sync.Mutex
	own map[string]slog.Level // components with their own level
}

// New returns the levels of a program that has these components. The base level is info.
func New(components ...string) *Levels {
	l := &Levels{components: map[string]*slog.LevelVar{}, own: map[string]slog.Level{}}
	for _, name := range components {
		l.components[name] = new(slog.LevelVar)
	}
	return l
}

// Standard returns the components of farcall: call (the line of each call), rpc (connections and
// messages), gateway, upstream, child (processes of upstreams), hook, signin, guard and trace.
func Standard() []string {
	return []string{"call", "rpc", "gateway", "upstream", "child", "hook", "signin", "guard", "trace"}
}

// Names returns the names of the levels that can be set.
func Names() (all []string) {
	for _, n := range names {
		all = append(all, n.name)
	}
	return all
}

// Components returns the names of the components, in alphabetical order.
func (l *Levels) Components() []string { return slices.Sorted(maps.Keys(l.components)) }

// Set is Apply of a text: a list of LEVEL, which is the base level, and COMPONENT=LEVEL, with
// commas between them. The last of several for the same component counts.
func (l *Levels) Set(text string) error {
	base, own := "", map[string]string{}
	for part := range strings.SplitSeq(text, ",") {
		component, name, of := strings.Cut(part, "=")
		switch component, name = strings.TrimSpace(component), strings.TrimSpace(name); {
		case of:
			own[component] = name
		case component == "":
			return l.unknown("level", "")
		default:
			base = component
		}
	}
	return l.Apply(base, own)
}

// Apply changes the base level, unless it is empty, and the levels of components. Default as the
// level of a component removes its own level. What is not named stays as it is. When any of it
// does not exist, nothing changes and the error is an [*Error].
func (l *Levels) Apply(base string, own map[string]string) error {
	if _, known := named(base); base != "" && !known {
		return l.unknown("level", base)
	}
	for _, component := range slices.Sorted(maps.Keys(own)) {
		if l.components[component] == nil {
			return l.unknown("component", component)
		}
		if _, known := named(own[component]); own[component] != Default && !known {
			return l.unknown("level", own[component])
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if level, known := named(base); known {
		l.base.Set(level)
	}
	for component, name := range own {
		if level, known := named(name); known {
			l.own[component] = level
		} else {
			delete(l.own, component)
		}
	}
	l.applyLocked()
	return nil
}

func (l *Levels) unknown(what, name string) error {
	if what == "level" {
		return &Error{what, name, Names()}
	}
	return &Error{what, name, l.Components()}
}

// Replace is Set after a reset: the base level is info, and no component has its own level.
func (l *Levels) Replace(text string) error {
	fresh := New(l.Components()...)
	if err := fresh.Set(text); err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.base.Set(fresh.base.Level())
	l.own = fresh.own
	l.applyLocked()
	return nil
}

func (l *Levels) applyLocked() {
	for name, at := range l.components {
		level, own := l.own[name]
		if !own {
			level = l.base.Level()
		}
		at.Set(level)
	}
}

// Get returns the name of the base level, and those of the components that have their own.
func (l *Levels) Get() (base string, own map[string]string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	own = map[string]string{}
	for component, level := range l.own {
		own[component] = nameOf(level)
	}
	return nameOf(l.base.Level()), own
}

// String returns the levels in the form that Set and Replace read.
func (l *Levels) String() string {
	base, own := l.Get()
	texts := []string{base}
	for _, component := range slices.Sorted(maps.Keys(own)) {
		texts = append(texts, component+"="+own[component])
	}
	return strings.Join(texts, ",")
}

func named(name string) (slog.Level, bool) {
	for _, n := range names {
		if n.name == name {
			return n.level, true
		}
	}
	return 0, false
}

func nameOf(level slog.Level) string {
	name := names[0].name
	for _, n := range names {
		if level >= n.level {
			name = n.name
		}
	}
	return name
}

// An Error is a level or a component that does not exist.
type Error struct {
	What       string // "level" or "component"
	Name       string
	Candidates []string // those that exist
}

// Error implements error.
func (e *Error) Error() string {
	known := strings.Join(e.Candidates, ", ")
	return fmt.Sprintf("there is no %s %.100q: use %s", e.What, e.Name, known)
}

// Handler returns a handler that passes on to h what the level of its component allows. The level
// of h itself must allow everything: it is not asked.
func (l *Levels) Handler(h slog.Handler) slog.Handler { return &handler{h, l, &l.base, false} }

type handler struct {
	slog.Handler

	levels  *Levels
	level   *slog.LevelVar
	grouped bool // attributes belong to a group
}

// Enabled implements slog.Handler.
func (h *handler) Enabled(_ context.Context, level slog.Level) bool {
	return level >= h.level.Level()
}

// WithAttrs implements slog.Handler. The attribute Key chooses the level.
func (h *handler) WithAttrs(attrs []slog.Attr) slog.Handler {
	next := *h
	next.Handler = h.Handler.WithAttrs(attrs)
	for _, a := range attrs {
		if a.Key != Key || h.grouped {
			continue
		}
		if level := h.levels.components[a.Value.String()]; level != nil {
			next.level = level
		}
	}
	return &next
}

// WithGroup implements slog.Handler.
func (h *handler) WithGroup(name string) slog.Handler {
	next := *h
	next.Handler, next.grouped = h.Handler.WithGroup(name), h.grouped || name != ""
	return &next
}
