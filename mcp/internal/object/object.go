// Package object writes JSON objects with members that are raw JSON.
package object

import (
	"slices"

	"github.com/farcall-dev/farcall/internal/jsonv2"
	"github.com/farcall-dev/farcall/internal/scan"
	"github.com/farcall-dev/farcall/jsonrpc"
)

// A Builder is a JSON object that is being written. It does not look for names that are added
// twice.
type Builder []byte

// New begins with the members of another object except those named in without. from may be nil.
func New(from jsonrpc.Raw, without ...string) *Builder {
	o := append(make(Builder, 0, len(from)+512), '{')
	return o.AddAll(from, without...)
}

// AddAll adds the members of another object except those named in without.
func (o *Builder) AddAll(from jsonrpc.Raw, without ...string) *Builder {
	for key, value := range scan.Members(from) {
		if !slices.Contains(without, string(key)) {
			o.Add(string(key), value)
		}
	}
	return o
}

// Add adds a member.
func (o *Builder) Add(name string, value jsonrpc.Raw) {
	if len(*o) > 1 {
		*o = append(*o, ',')
	}
	*o = append(append(jsonrpc.AppendString(*o, name), ':'), value...)
}

// Marshal adds a member with the JSON of value, or returns the error of marshalling it.
func (o *Builder) Marshal(name string, value any) error {
	raw, err := jsonv2.Append(nil, value)
	if err == nil {
		o.Add(name, raw)
	}
	return err
}

// End returns the object. The Builder is not used after it.
func (o *Builder) End() jsonrpc.Raw { return append(jsonrpc.Raw(*o), '}') }

// With returns the object from with that value in that member.
func With(from jsonrpc.Raw, name string, value jsonrpc.Raw) jsonrpc.Raw {
	o := New(from, name)
	o.Add(name, value)
	return o.End()
}

// OrEmpty returns {} for params that are absent, and for null, else raw.
func OrEmpty(raw jsonrpc.Raw) jsonrpc.Raw {
	if len(raw) == 0 || string(raw) == "null" {
		return jsonrpc.Raw("{}")
	}
	return raw
}
