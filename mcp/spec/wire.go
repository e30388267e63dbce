package spec

import (
	"bytes"
	"encoding/base64"
	"errors"
	"fmt"

	"github.com/farcall-dev/farcall/internal/jsonv2"
	"github.com/farcall-dev/farcall/internal/scan"
	"github.com/farcall-dev/farcall/jsonrpc"
)

// writer appends the members of one object, without reflection but for put.
type writer struct {
	dst []byte
	err error // of the first member that could not be written; it is left out
}

func (w *writer) open()  { w.dst = append(w.dst, '{') }
func (w *writer) close() { w.dst = append(w.dst, '}') }

// name appends the name of the next member, which needs no escapes.
func (w *writer) name(name string) {
	if w.dst[len(w.dst)-1] != '{' { // no value ends so
		w.dst = append(w.dst, ',')
	}
	w.dst = append(append(append(w.dst, '"'), name...), '"', ':')
}

func (w *writer) text(name, s string) {
	w.name(name)
	w.dst = jsonrpc.AppendString(w.dst, s)
}

func (w *writer) textIf(name, s string) {
	if s != "" {
		w.text(name, s)
	}
}

func (w *writer) base64(name string, b []byte) {
	w.name(name)
	w.dst = append(base64.StdEncoding.AppendEncode(append(w.dst, '"'), b), '"')
}

func (w *writer) raw(name string, raw jsonrpc.Raw) {
	w.name(name)
	w.dst = append(w.dst, raw...)
}

func (w *writer) rawIf(name string, raw jsonrpc.Raw) {
	if raw != nil {
		w.raw(name, raw)
	}
}

func (w *writer) flagIf(name string, b bool) {
	if b {
		w.raw(name, jsonrpc.Raw("true"))
	}
}

func (w *writer) blocks(name string, list []Content) {
	w.name(name)
	w.dst = append(w.dst, '[')
	for i := range list {
		if i > 0 {
			w.dst = append(w.dst, ',')
		}
		list[i].write(w)
	}
	w.dst = append(w.dst, ']')
}

func (w *writer) meta(m Meta) {
	if m != nil {
		w.put("_meta", m)
	}
}

// put appends any value. One that is no JSON is left out with its name.
func (w *writer) put(name string, v any) {
	before := w.dst
	w.name(name)
	out, err := jsonv2.Append(w.dst, v)
	if err != nil {
		if w.err == nil {
			w.err = fmt.Errorf("mcp: the member %q cannot be written as JSON: %w", name, err)
		}
		out = before
	}
	w.dst = out
}

// bytes returns what was written, unless something could not be.
func (w *writer) bytes() ([]byte, error) {
	if w.err != nil {
		return nil, w.err
	}
	return w.dst, nil
}

// object takes the object b apart. member stores the value of one member.
func object(what string, b []byte, member func(key, value []byte) error) error {
	if i := scan.Space(b, 0); i == len(b) || b[i] != '{' {
		return fmt.Errorf("%s must be an object", what)
	}
	for key, value := range scan.Members(b) {
		if err := member(key, value); err != nil {
			return fmt.Errorf("%s: %q: %w", what, key, err)
		}
	}
	return nil
}

var (
	errNoString = errors.New("must be a string")
	errNoArray  = errors.New("must be an array")
	errNoBase64 = errors.New("must be base64")
	errNoType   = errors.New(`content must be an object with a "type", a string`)
)

// A place is where the value of a member goes.
type place struct {
	name string
	into any
}

// members stores the members of an object that have a place. what is the object, for the error.
func members(what string, b []byte, places []place) error {
	return object(what, b, func(key, value []byte) error { return readMember(places, key, value) })
}

// readMember stores the value of a member that has a place.
func readMember(places []place, key, value []byte) error {
	for i := range places {
		if places[i].name == string(key) {
			return read(places[i].into, value)
		}
	}
	return nil
}

// read stores a value.
func read(into any, value []byte) error {
	switch into := into.(type) {
	case *string:
		return readText(into, value)
	case *[]byte:
		return readBase64(into, value)
	case *[]Content:
		return readBlocks(into, value, "")
	case *oneOrMore:
		return into.read(value)
	case *jsonrpc.Raw:
		*into = bytes.Clone(value)
		return nil
	}
	return jsonv2.Unmarshal(value, into)
}

// What is null counts as absent: no member of ours may be null, but peers write
// it where they have nothing.
func isNull(value []byte) bool { return value[0] == 'n' }

func readText(into *string, value []byte) error {
	switch {
	case isNull(value):
		return nil
	case value[0] != '"':
		return errNoString
	}
	*into = string(scan.Unquote(value))
	return nil
}

// readBase64 stores the bytes that a string stands for. They are nil only when
// the value is null.
func readBase64(into *[]byte, value []byte) error {
	switch {
	case isNull(value):
		return nil
	case value[0] != '"':
		return errNoString
	}
	text := scan.Unquote(value)
	data := make([]byte, base64.StdEncoding.DecodedLen(len(text)))
	n, err := base64.StdEncoding.Decode(data, text)
	if err != nil {
		return errNoBase64
	}
	*into = data[:n]
	return nil
}

// readBlocks stores an array of content that is part of content of the type
// inside, if any.
func readBlocks(into *[]Content, value []byte, inside string) error {
	switch {
	case isNull(value):
		return nil
	case value[0] != '[':
		return errNoArray
	}
	*into = []Content{}
	for block := range scan.Elements(value) {
		var c Content
		err := c.read(block, inside)
		*into = append(*into, c)
		if err != nil {
			return err
		}
	}
	return nil
}
