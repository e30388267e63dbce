package farcall

import (
	"cmp"
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
	hidden  atomic.Bool          // Methods and rpc.discover leave it out
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
		misuse("the method %q: names that start with %q are reserved for the system (JSON-RPC 2.0, "+
			"section 8); choose another", e.name, reservedPrefix)
	case old[e.name] != nil:
		misuse("the method %q has a handler already", e.name)
	case e.handler == nil:
		misuse("the method %q needs a handler", e.name)
	}
	if slices.ContainsFunc(m.lenient, func(prefix string) bool {
		return strings.HasPrefix(e.name, prefix)
	}) {
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
	m, prefix := m.root()
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

// root returns the Mux that m is a group of, or m, and the prefix of what m adds there.
func (m *Mux) root() (*Mux, string) {
	prefix := ""
	for ; m.whole != nil; m = m.whole {
		prefix = m.prefix + prefix
	}
	return m, prefix
}

// Hide leaves methods out of Methods and rpc.discover, such as former names that old clients
// still call. It panics when there is no such method.
func (m *Mux) Hide(methods ...string) {
	m, prefix := m.root()
	m.adding.Lock()
	defer m.adding.Unlock()
	all := maps.Clone(*m.methods.Load()) // another map: what describes the last one is out of date
	for _, name := range methods {
		e := all[prefix+name]
		if e == nil {
			misuse("Hide: there is no method %q; add it first", prefix+name)
		}
		e.hidden.Store(true)
	}
	m.methods.Store(&all)
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
		return nil, &jsonrpc.Error{
			Code: jsonrpc.MethodNotFound, Message: "Method not found",
			Cause: unknownMethodError(req.Method),
		}
	}
	req.entry = e
	return e.handler.ServeRPC(ctx, req)
}

type unknownMethodError string

func (m unknownMethodError) Error() string {
	return fmt.Sprintf("there is no method %q", string(m))
}

// Methods describes the methods, sorted by name, without rpc.discover and those of Hide.
func (m *Mux) Methods() []Method {
	var all []Method
	methods := m.methods.Load()
	for _, e := range sorted(methods) {
		one := Method{
			Name: e.name, Summary: e.summary(), Description: e.description(),
			Subscription: e.subscribes(*methods),
		}
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
		if e.name != discoverMethod && !e.hidden.Load() {
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

// openRPCVersion is the version of the OpenRPC specification that the document
// of rpc.discover keeps to.
const openRPCVersion = "1.4.0"

// An OpenRPC document, as far as it is used here.
type openRPC struct {
	OpenRPC    string          `json:"openrpc"`
	Info       openRPCInfo     `json:"info"`
	Methods    []openRPCMethod `json:"methods"`
	Components *components     `json:"components,omitzero"`
}

type openRPCInfo struct {
	Title       string `json:"title"`
	Version     string `json:"version"`
	Description string `json:"description,omitempty"`
}

type components struct {
	Schemas schema.Members `json:"schemas"`
}

type openRPCMethod struct {
	Name           string              `json:"name"`
	Summary        string              `json:"summary,omitempty"`
	Description    string              `json:"description,omitempty"`
	ParamStructure string              `json:"paramStructure"`
	Params         []contentDescriptor `json:"params"`
	Result         *contentDescriptor  `json:"result,omitempty"` // none: it is a notification
	// XParams describes the params as a whole, where they are no list of named
	// parameters. OpenRPC has no word for that.
	XParams *schema.Schema `json:"x-farcall-params,omitzero"`
	// XStreaming: the values of the result can be had one by one.
	XStreaming bool `json:"x-farcall-streaming,omitzero"`
	// XNotification: there is nothing to answer, so it may as well be notified.
	XNotification bool `json:"x-farcall-notification,omitzero"`
}

type contentDescriptor struct {
	Name        string         `json:"name"`
	Description string         `json:"description,omitempty"`
	Required    bool           `json:"required,omitzero"`
	Schema      *schema.Schema `json:"schema"`
}

// document is the answer of rpc.discover, and what it was made of.
type document struct {
	methods *map[string]*entry
	info    openRPCInfo
	raw     jsonrpc.Raw
}

// discover answers rpc.discover.
func (m *Mux) discover(context.Context, *Request) (any, error) {
	info := openRPCInfo{
		Title:       cmp.Or(m.Info.Title, "JSON-RPC service"),
		Version:     cmp.Or(m.Info.Version, "0.0.0"),
		Description: m.Info.Description,
	}
	methods := m.methods.Load()
	if d := m.document.Load(); d != nil && d.methods == methods && d.info == info {
		return d.raw, nil
	}
	doc := openRPC{OpenRPC: openRPCVersion, Info: info}
	set := schema.NewSet("#/components/schemas/")
	for _, e := range sorted(methods) {
		one, err := e.openRPC(set)
		if err != nil {
			return nil, err
		}
		doc.Methods = append(doc.Methods, one)
	}
	if defs := set.Definitions(); len(defs) > 0 {
		doc.Components = &components{defs}
	}
	raw, err := jsonv2.Append(nil, &doc)
	if err != nil {
		return nil, err
	}
	m.document.Store(&document{methods, info, raw})
	return jsonrpc.Raw(raw), nil
}

// openRPC describes a method.
func (e *entry) openRPC(set *schema.Set) (openRPCMethod, error) {
	o := openRPCMethod{
		Name: e.name, Summary: e.summary(), Description: e.description(),
		ParamStructure: "either", Result: &contentDescriptor{Name: "result"},
	}
	t := e.types
	if t == nil { // anything goes
		o.XParams, o.Result.Schema = &schema.Schema{}, &schema.Schema{}
		return o, nil
	}
	var err error
	if o.Result.Schema, err = set.Of(t.result); err != nil {
		return o, err
	}
	switch {
	case t.stream:
		o.XStreaming = true
		o.Result.Schema = &schema.Schema{Type: "array", Items: o.Result.Schema}
	case t.notification:
		o.XNotification, o.Result = true, nil
	case isVoid(t.result):
		o.XNotification = true
		o.Result.Schema = &schema.Schema{Type: "null"}
	}
	return o, o.describeParams(t.params.Load(), set)
}

func (o *openRPCMethod) describeParams(p *plan, set *schema.Set) (err error) {
	switch p.shape {
	case shapeStruct:
		return o.listParams(p, set)
	case shapeSingle:
		o.ParamStructure = "by-position"
		one := contentDescriptor{Name: "value", Required: p.typ == deref(p.typ)}
		one.Schema, err = set.Of(p.typ)
		o.Params = []contentDescriptor{one}
		return err
	case shapeList:
		o.ParamStructure = "by-position"
	case shapeMap:
		o.ParamStructure = "by-name"
	}
	o.XParams, err = set.Of(deref(p.typ))
	return err
}

// listParams describes the fields of a struct. OpenRPC wants the optional ones
// last; where they are not, the position says nothing to its readers.
func (o *openRPCMethod) listParams(p *plan, set *schema.Set) error {
	var last []contentDescriptor
	for i := range p.params {
		f := &p.params[i]
		one := contentDescriptor{Name: f.Name, Description: f.Doc(), Required: !f.Optional}
		var err error
		if one.Schema, err = set.Member(f.Field); err != nil {
			return err
		}
		if one.Description != "" {
			one.Schema.Description = ""
		}
		if f.Optional {
			last = append(last, one)
			continue
		}
		if len(last) > 0 {
			o.ParamStructure = "by-name"
		}
		o.Params = append(o.Params, one)
	}
	o.Params = append(o.Params, last...)
	return nil
}
