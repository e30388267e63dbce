package farcall

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"reflect"
	"strconv"
	"strings"

	"github.com/farcall-dev/farcall/internal/jsonv2"
	"github.com/farcall-dev/farcall/internal/scan"
	"github.com/farcall-dev/farcall/internal/validate"
	"github.com/farcall-dev/farcall/jsonrpc"
)

// Bind reads the params into what v points to, by name or by position, as
// [Handle] does for its P. What the params leave out keeps its value. The error
// is an InvalidParams with data that says which parameter is wrong, unless v itself
// is unfit.
func (r *Request) Bind(v any) error {
	at := reflect.ValueOf(v)
	if at.Kind() != reflect.Pointer || at.IsNil() {
		return fmt.Errorf("farcall: Bind needs a pointer to bind to, not %T", v)
	}
	p, err := r.planFor(at.Type().Elem())
	if err != nil {
		return fmt.Errorf("farcall: Bind cannot fill %T: %w", v, err)
	}
	if err := p.bind(at.Elem(), r.Params); err != nil {
		return err
	}
	return nil
}

// planFor returns the plan of a type. The method remembers the last one, because
// a handler binds to the same type each time.
func (r *Request) planFor(t reflect.Type) (*plan, error) {
	if r.entry == nil { // not called through a Mux
		return newPlan(t, false)
	}
	if p := r.entry.bound.Load(); p != nil && p.typ == t {
		return p, nil
	}
	p, err := newPlan(t, r.entry.lenient.Load())
	if err == nil {
		r.entry.bound.Store(p)
	}
	return p, err
}

// bind reads params, which are valid JSON or nil, into v, which can be set.
func (p *plan) bind(v reflect.Value, params jsonrpc.Raw) *jsonrpc.Error {
	first := byte(0)
	if i := scan.Space(params, 0); i < len(params) {
		first = params[i]
	}
	switch p.shape {
	case shapeStruct:
		for v.Kind() == reflect.Pointer {
			if v.IsNil() {
				v.Set(reflect.New(v.Type().Elem()))
			}
			v = v.Elem()
		}
		if first == '[' {
			return p.byPosition(v, params)
		}
		return p.byMember(v, params)
	case shapeSingle:
		return p.single(v, params, first)
	case shapeRaw:
		if v.Kind() == reflect.Slice {
			v.SetBytes(params)
			return nil
		}
	case shapeList:
		if first == '{' {
			return problem{reason: wrongType, want: "array", got: "object"}.refuse()
		}
	case shapeMap:
		if first == '[' {
			return problem{reason: wrongType, want: "object", got: "array"}.refuse()
		}
	}
	if first == 0 {
		return nil
	}
	return p.whole(v, params)
}

// given notes which parameters there are; of most methods without allocating.
type given struct {
	few  [32]bool
	many []bool
}

func (g *given) of(p *plan) []bool {
	if len(p.params) > len(g.few) {
		g.many = make([]bool, len(p.params))
		return g.many
	}
	return g.few[:len(p.params)]
}

func (p *plan) byMember(v reflect.Value, params jsonrpc.Raw) (refusal *jsonrpc.Error) {
	var g given
	seen, next := g.of(p), 0
	var kept reflect.Value // the map for unknown members
	for key, value := range scan.Members(params) {
		i := p.find(key, next)
		switch {
		case i < 0 && (string(key) == "_meta" || string(key) == partialToken || string(key) == workToken):
			// progress and trace context
		case i < 0 && p.rest != nil:
			kept, refusal = p.rest.keep(v, kept, string(key), value)
		case i < 0 && p.lenient:
		case i < 0:
			refusal = problem{member: string(key), reason: "unknown"}.refuse()
		case seen[i]:
			refusal = problem{member: string(key), reason: "duplicate"}.refuse()
		default:
			seen[i], next = true, i+1
			refusal = p.params[i].read(v, value, -1)
		}
		if refusal != nil {
			return refusal
		}
	}
	return p.complete(v, seen, false)
}

func (p *plan) byPosition(v reflect.Value, params jsonrpc.Raw) *jsonrpc.Error {
	var g given
	seen, i := g.of(p), 0
	for value := range scan.Elements(params) {
		if i >= len(seen) {
			return problem{index: i, positional: true, reason: "extra"}.refuse()
		}
		seen[i] = true
		if refusal := p.params[i].read(v, value, i); refusal != nil {
			return refusal
		}
		i++
	}
	return p.complete(v, seen, true)
}

// find returns the index of a parameter, or -1. It looks at next first, because
// most callers keep the order.
func (p *plan) find(name []byte, next int) int {
	if next < len(p.params) && p.params[next].Name == string(name) {
		return next
	}
	if p.byName != nil {
		if i, ok := p.byName[string(name)]; ok {
			return i
		}
		return -1
	}
	for i := range p.params {
		if p.params[i].Name == string(name) {
			return i
		}
	}
	return -1
}

// complete deals with what was not given.
func (p *plan) complete(v reflect.Value, seen []bool, positional bool) *jsonrpc.Error {
	for i := range p.params {
		one := &p.params[i]
		switch {
		case seen[i]:
		case !one.Optional:
			pr := problem{member: one.Name, reason: "missing"}
			if positional {
				pr.step = strconv.Itoa(i)
			}
			return pr.refuse()
		default:
			if refusal := one.absent(v); refusal != nil {
				return refusal
			}
		}
	}
	return nil
}

func (p *param) absent(v reflect.Value) *jsonrpc.Error {
	if p.standard == nil {
		return nil
	}
	return p.set(v, p.standard, -1)
}

// keep adds a member that the struct does not know to the map, which is made by the first one.
func (p *param) keep(
	v, kept reflect.Value, name string, raw []byte,
) (reflect.Value, *jsonrpc.Error) {
	if !kept.IsValid() {
		kept = reflect.MakeMap(p.Type)
		p.field(v).Set(kept)
	}
	key := reflect.ValueOf(name).Convert(p.Type.Key())
	if kept.MapIndex(key).IsValid() {
		return kept, problem{member: name, reason: "duplicate"}.refuse()
	}
	value := reflect.New(p.Type.Elem())
	var pr problem
	if err := p.unmarshal(raw, value.Interface()); err != nil {
		pr = problemOf(err, p.Type.Elem())
	} else if bad := p.check.problem(raw); bad != nil {
		pr = *bad
	} else {
		kept.SetMapIndex(key, value.Elem())
		return kept, nil
	}
	pr.member = name
	return kept, pr.refuse()
}

// field returns the field of v. It makes the embedded structs on the way.
func (p *param) field(v reflect.Value) reflect.Value {
	v = v.Field(p.Index[0])
	for _, i := range p.Index[1:] {
		if v.Kind() == reflect.Pointer {
			if v.IsNil() {
				v.Set(reflect.New(v.Type().Elem()))
			}
			v = v.Elem()
		}
		v = v.Field(i)
	}
	return v
}

// read sets the parameter of v and checks it. The position is -1 when it was given by name.
func (p *param) read(v reflect.Value, raw []byte, position int) *jsonrpc.Error {
	if raw[0] == 'n' && !p.nullable {
		if p.Optional {
			return p.absent(v)
		}
		return p.wrong(raw, position)
	}
	if refusal := p.set(v, raw, position); refusal != nil {
		return refusal
	}
	if pr := p.check.problem(raw); pr != nil {
		pr.member = p.Name
		return pr.at(position).refuse()
	}
	return nil
}

// set sets the parameter of v.
func (p *param) set(v reflect.Value, raw []byte, position int) *jsonrpc.Error {
	field := p.field(v)
	if p.raw {
		field.SetBytes(bytes.Clone(raw)) // the frame's memory ends with the handler
		return nil
	}
	if p.kind != reflect.Invalid {
		return p.readPlain(field, raw, position)
	}
	err := p.unmarshal(raw, field.Addr().Interface())
	if err == nil {
		return nil
	}
	pr := problemOf(err, p.Type)
	pr.member = p.Name
	return pr.at(position).refuse()
}

// readPlain reads numbers, strings and booleans without the library.
func (p *param) readPlain(field reflect.Value, raw []byte, position int) *jsonrpc.Error {
	switch c := raw[0]; {
	case p.kind == reflect.String && c == '"':
		field.SetString(string(scan.Unquote(raw)))
		return nil
	case p.kind == reflect.Bool && (c == 't' || c == 'f'):
		field.SetBool(c == 't')
		return nil
	case p.kind == reflect.String, p.kind == reflect.Bool, c != '-' && (c < '0' || c > '9'):
		return p.wrong(raw, position)
	}
	err := setNumber(field, raw)
	switch {
	case err == nil:
		return nil
	case errors.Is(err, strconv.ErrRange):
		pr := problem{member: p.Name, reason: outOfRange, want: expected(p.Type), got: "number"}
		return pr.at(position).refuse()
	default:
		return p.wrong(raw, position)
	}
}

// setNumber sets a field of a number's kind.
func setNumber(field reflect.Value, raw []byte) error {
	if k := field.Kind(); k == reflect.Float32 || k == reflect.Float64 {
		n, err := strconv.ParseFloat(string(raw), field.Type().Bits())
		if err == nil {
			field.SetFloat(n)
		}
		return err
	}
	err := setInteger(field, raw)
	if !errors.Is(err, strconv.ErrSyntax) {
		return err
	}
	var digits [24]byte
	plain, ok := jsonv2.Integer(digits[:0], raw) // 2.0 and 1e2 are integers, too
	switch {
	case !ok:
		return err
	case len(plain) == 0:
		return strconv.ErrRange
	}
	return setInteger(field, plain)
}

func setInteger(field reflect.Value, raw []byte) error {
	bits := field.Type().Bits()
	if field.CanInt() {
		n, err := strconv.ParseInt(string(raw), 10, bits)
		if err == nil {
			field.SetInt(n)
		}
		return err
	}
	n, err := strconv.ParseUint(string(raw), 10, bits)
	if err == nil {
		field.SetUint(n)
	}
	return err
}

func (p *param) wrong(raw []byte, position int) *jsonrpc.Error {
	pr := problem{member: p.Name, reason: wrongType, want: expected(p.Type), got: jsonv2.KindOf(raw)}
	return pr.at(position).refuse()
}

// single reads an array of one element.
func (p *plan) single(v reflect.Value, params jsonrpc.Raw, first byte) *jsonrpc.Error {
	if first == '{' {
		return problem{reason: wrongType, want: "array", got: "object"}.refuse()
	}
	var one []byte
	for value := range scan.Elements(params) {
		if one != nil {
			return problem{index: 1, positional: true, reason: "extra"}.refuse()
		}
		one = value
	}
	switch {
	case v.Kind() == reflect.Pointer && (one == nil || one[0] == 'n'):
		return nil
	case one == nil:
		return problem{positional: true, reason: "missing"}.refuse()
	case one[0] == 'n':
		return problem{positional: true, reason: wrongType, want: expected(p.typ), got: "null"}.refuse()
	}
	if err := p.unmarshal()(one, v.Addr().Interface()); err != nil {
		pr := problemOf(err, p.typ)
		pr.positional = true
		return pr.refuse()
	}
	return nil
}

// whole lets the library read all of the params.
func (p *plan) whole(v reflect.Value, params jsonrpc.Raw) *jsonrpc.Error {
	var pr problem
	if err := p.unmarshal()(params, v.Addr().Interface()); err != nil {
		pr = problemOf(err, p.typ)
	} else if bad := p.check.problem(params); bad != nil {
		pr = *bad
	} else {
		return nil
	}
	var first string
	first, pr.pointer = jsonv2.First(pr.pointer)
	if i, err := strconv.Atoi(first); err == nil && p.shape == shapeList {
		pr.index, pr.positional = i, true
	} else {
		pr.member = first
	}
	return pr.refuse()
}

// A problem says which parameter is wrong and why.
type problem struct {
	member     string
	index      int // instead of the member, when positional
	positional bool
	step       string // to the parameter; "": its name or index
	pointer    string // to what is wrong inside the parameter
	reason     string
	want, got  string // JSON types
	cause      *validate.Error
}

const (
	wrongType  = "wrong type"
	outOfRange = "out of range"
)

// problemOf says why the library could not read a t.
func problemOf(err error, t reflect.Type) problem {
	e := jsonv2.Explain(err)
	pr := problem{pointer: e.Pointer, reason: e.Reason}
	if e.Reason == "unknown" || e.Reason == "duplicate" {
		return pr
	}
	if e.Pointer != "" && e.Want != nil {
		t = e.Want
	}
	pr.want, pr.got = expected(t), e.Got
	if pr.reason == "" {
		if pr.reason = wrongType; pr.want == "" || pr.want == pr.got || pr.got == "" {
			pr.reason, pr.want, pr.got = "invalid value", "", ""
		}
	}
	return pr
}

// at says at which position the parameter was given; -1 is by name.
func (pr problem) at(position int) problem {
	if position >= 0 {
		pr.step = strconv.Itoa(position)
	}
	return pr
}

// pointerSteps escapes a step of a JSON Pointer (RFC 6901 §3).
var pointerSteps = strings.NewReplacer("~", "~0", "/", "~1")

// refuse returns the answer.
func (pr problem) refuse() *jsonrpc.Error {
	data := []byte{'{'}
	add := func(name, value string) {
		if value == "" {
			return
		}
		if len(data) > 1 {
			data = append(data, ',')
		}
		data = jsonrpc.AppendString(data, name)
		data = jsonrpc.AppendString(append(data, ':'), value)
	}
	who, step := "the params", pr.step
	if pr.positional {
		data = strconv.AppendInt(append(data, `"member":`...), int64(pr.index), 10)
		who, step = "the parameter at index "+strconv.Itoa(pr.index), strconv.Itoa(pr.index)
	} else if pr.member != "" {
		// A name that the caller made up may have any length.
		name := pr.member[:min(len(pr.member), maxEcho)]
		add("member", name)
		who, step = "the parameter "+strconv.Quote(name), cmp.Or(step, name)
	}
	if step != "" {
		pointer := "/" + pointerSteps.Replace(step) + pr.pointer
		add("pointer", pointer[:min(len(pointer), maxEcho)])
	}
	add("reason", pr.reason)
	add("expected", pr.want)
	add("got", pr.got)
	if pr.cause != nil {
		add("message", pr.cause.Problems[0].Message)
	}
	return &jsonrpc.Error{
		Code: jsonrpc.InvalidParams, Message: "Invalid params", Data: append(data, '}'),
		Cause: errors.New(who + ": " + pr.reason),
	}
}

// maxEcho bounds what an answer repeats of the caller's names.
const maxEcho = 256
