package farcall

import (
	"context"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/farcall-dev/farcall/internal/jsonv2"
	"github.com/farcall-dev/farcall/internal/schema"
	"github.com/farcall-dev/farcall/jsonrpc"
)

// A Mux is a Handler that finds the handler of a method by its name. Methods
// may be added while it serves; finding one takes no lock. Every Mux answers
// rpc.discover with an OpenRPC document that describes its methods.
type Mux struct {
	// Info says in the OpenRPC document what the service is. Set it before the
	// Mux serves. Default: "JSON-RPC service", version "0.0.0".
	Info struct{ Title, Version, Description string }

	// Of a group: the methods that it adds, with which prefix, and what surrounds them.
	whole  *Mux
	prefix string
	around []Interceptor

	adding   sync.Mutex
	lenient  []string                          // how methods begin that ignore unknown members
	methods  atomic.Pointer[map[string]*entry] // copied on write
	document atomic.Pointer[document]
}

// entry is a method of a Mux.
type entry struct {
	name    string
	handler Handler
	load    load
	doc     []string
	types   *signature           // nil when the handler is not typed
	bound   atomic.Pointer[plan] // of the last type that Bind has filled
	lenient atomic.Bool          // unknown members are ignored
}

// signature is what is known of a typed method.
type signature struct {
	params atomic.Pointer[plan]
	result reflect.Type // of one value, when it streams
	stream bool
	// It is notified only.
	notification bool
	// It can be subscribed to.
	subscription bool
}

// A Method describes a method of a Mux.
type Method struct {
	Name        string
	Summary     string      // one line
	Description string      // the rest
	Params      jsonrpc.Raw // JSON Schema of the params; nil when they are not described
	Result      jsonrpc.Raw // JSON Schema of the result, or of each value that it streams
	Stream      bool
	// Notification: it is not called, only notified, and has no Result.
	Notification bool
	// Subscription: HandleSubscription or HandleTopic added it, events or the methods that subscribe
	// and unsubscribe.
	Subscription bool
}

const (
	reservedPrefix = "rpc." // JSON-RPC 2.0 §8: system extensions
	discoverMethod = "rpc.discover"
)

// NewMux returns a Mux with no methods but rpc.discover.
func NewMux() *Mux {
	m := &Mux{}
	m.methods.Store(&map[string]*entry{
		discoverMethod: {name: discoverMethod, handler: HandlerFunc(m.discover)},
	})
	return m
}

// Handle adds a method. The first doc is its summary, in one line; the others
// are paragraphs of its description. Handle panics when the name is empty,
// taken, or starts with "rpc.".
//
// The function [Handle] does the same for a function of Go types, and describes
// those in rpc.discover.
func (m *Mux) Handle(method string, h Handler, doc ...string) {
	m.add(&entry{name: method, handler: h, doc: doc})
}

func (m *Mux) add(e *entry) {
	if m.whole != nil {
		m.addTo(m.whole, e)
		return
	}
	m.adding.Lock()
	defer m.adding.Unlock()
	old := *m.methods.Load()
	switch {
	case e.name == "":
		misuse("a method needs a name")
	case strings.HasPrefix(e.name, reservedPrefix):
		misuse("the method %q: names that start with %q are reserved for the system (JSON-RPC 2.0, section 8); choose another", e.name, reservedPrefix)
	case old[e.name] != nil:
		misuse("the method %q has a handler already", e.name)
	case e.handler == nil:
		misuse("the method %q needs a handler", e.name)
	}
	if slices.ContainsFunc(m.lenient, func(prefix string) bool { return strings.HasPrefix(e.name, prefix) }) {
		e.ignoreUnknown()
	}
	methods := maps.Clone(old)
	methods[e.name] = e
	m.methods.Store(&methods)
}

// IgnoreUnknown lets methods take params with members that their types do not have, at any depth,
// and drop them: those of protocols that grow, such as LSP's initialize. Without names it is for
// all methods of m or of the group, those that are added later included. A type that wants to keep
// such members has a map for them: see [Handle]. More params by position than there are fields are
// still refused. IgnoreUnknown panics when there is no such method.
func (m *Mux) IgnoreUnknown(methods ...string) {
	prefix := ""
	for ; m.whole != nil; m = m.whole {
		prefix = m.prefix + prefix
	}
	m.adding.Lock()
	defer m.adding.Unlock()
	all := *m.methods.Load()
	if len(methods) == 0 {
		m.lenient = append(m.lenient, prefix)
		for name, e := range all {
			if strings.HasPrefix(name, prefix) {
				e.ignoreUnknown()
			}
		}
	}
	for _, name := range methods {
		e := all[prefix+name]
		if e == nil {
			misuse("IgnoreUnknown: there is no method %q; add it first", prefix+name)
		}
		e.ignoreUnknown()
	}
}

func (e *entry) ignoreUnknown() {
	e.lenient.Store(true)
	e.bound.Store(nil)
	if e.types == nil {
		return
	}
	p, err := newPlan(e.types.params.Load().typ, true)
	if err != nil {
		misuse("the params of the method %q: %v", e.name, err)
	}
	e.types.params.Store(p)
}

// misuse ends a program that was put together wrongly.
func misuse(format string, args ...any) {
	panic("farcall: " + fmt.Sprintf(format, args...)) //nolint:forbidigo // the mistake is in the calling code, as with http.ServeMux
}

// find returns the entry of a method, or nil. It does not allocate.
func (m *Mux) find(method []byte) *entry { return (*m.methods.Load())[string(method)] }

// ServeRPC calls the handler of the method.
func (m *Mux) ServeRPC(ctx context.Context, req *Request) (any, error) {
	e := (*m.methods.Load())[req.Method]
	if e == nil {
		return nil, &jsonrpc.Error{Code: jsonrpc.MethodNotFound, Message: "Method not found", Cause: unknownMethodError(req.Method)}
	}
	req.entry = e
	return e.handler.ServeRPC(ctx, req)
}

type unknownMethodError string

func (m unknownMethodError) Error() string { return fmt.Sprintf("there is no method %q", string(m)) }

// Methods describes the methods, sorted by name, without rpc.discover.
func (m *Mux) Methods() []Method {
	var all []Method
	methods := m.methods.Load()
	for _, e := range sorted(methods) {
		one := Method{Name: e.name, Summary: e.summary(), Description: e.description(), Subscription: e.subscribes(*methods)}
		if t := e.types; t != nil {
			one.Stream = t.stream
			p := t.params.Load()
			one.Params = standalone(p.typ, !p.lenient)
			if one.Notification = t.notification; !one.Notification {
				one.Result = standalone(t.result, false)
			}
		}
		all = append(all, one)
	}
	return all
}

func sorted(methods *map[string]*entry) []*entry {
	var all []*entry
	for _, e := range *methods {
		if e.name != discoverMethod {
			all = append(all, e)
		}
	}
	slices.SortFunc(all, func(a, b *entry) int { return strings.Compare(a.name, b.name) })
	return all
}

func (e *entry) summary() string {
	if len(e.doc) == 0 {
		return ""
	}
	return e.doc[0]
}

func (e *entry) description() string {
	if len(e.doc) < 2 {
		return ""
	}
	return strings.Join(e.doc[1:], "\n\n")
}

// standalone returns the schema of a type that was found to have one when its
// method was added.
func standalone(t reflect.Type, closed bool) jsonrpc.Raw {
	if isVoid(t) && !closed {
		return jsonrpc.Raw(`{"type":"null"}`)
	}
	s, err := schema.For(t, closed)
	if err != nil {
		return nil
	}
	raw, err := jsonv2.Append(nil, s)
	if err != nil {
		return nil
	}
	return raw
}

// Group returns a Mux that adds methods to m: their names begin with the prefix, as in
//
//	math := mux.Group("math/", logged)
//	farcall.Handle(math, "add", add) // it is called math/add
//
// and the interceptors, the first outermost, surround them, inside of those of
// Options. Groups can have groups. A Group serves nothing itself; m does.
func (m *Mux) Group(prefix string, around ...Interceptor) *Mux {
	g := &Mux{whole: m, prefix: prefix, around: slices.Clone(around)}
	g.methods.Store(&map[string]*entry{}) // a group serves nothing
	return g
}

// addTo adds a method of a group to the Mux that it is a group of.
func (m *Mux) addTo(whole *Mux, e *entry) {
	switch {
	case e.name == "":
		misuse("a method needs a name")
	case e.handler == nil:
		misuse("the method %q needs a handler", m.prefix+e.name)
	}
	e.name = m.prefix + e.name
	for _, wrap := range slices.Backward(m.around) {
		e.handler = wrap(e.handler)
	}
	whole.add(e)
}
