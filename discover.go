package farcall

import (
	"cmp"
	"context"

	"github.com/farcall-dev/farcall/internal/jsonv2"
	"github.com/farcall-dev/farcall/internal/schema"
	"github.com/farcall-dev/farcall/jsonrpc"
)

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
