package openapi

import (
	"fmt"
	"slices"
	"strings"
)

// A bodyKind is how arguments become a body.
type bodyKind uint8

const (
	bodyNone bodyKind = iota
	bodyJSON
	bodyForm
	bodyMultipart
	bodyText
	bodyBinary
)

// A body is what is known of the body of an operation's requests.
type body struct {
	kind     bodyKind
	media    string // its Content-Type
	required bool
	whole    bool // it is one argument
}

// fileSchema describes a file. %s is a description.
const fileSchema = `{"type":"object"%s,"properties":{"data":{"type":"string","description":"the ` +
	`content in base64","contentEncoding":"base64"},` +
	`"filename":{"type":"string"},"mime_type":{"type":"string"}},"required":["data"],` +
	`"additionalProperties":false}`

// kindOf returns how a media type is written, and how much it is preferred: less is more.
func kindOf(media string) (kind bodyKind, rank int) {
	switch {
	case media == "application/json":
		return bodyJSON, 0
	case media == "application/merge-patch+json":
		return bodyJSON, 1
	case isJSON(media):
		return bodyJSON, 2
	case media == "application/x-www-form-urlencoded":
		return bodyForm, 3
	case media == "multipart/form-data":
		return bodyMultipart, 4
	case media == "text/plain", strings.HasPrefix(media, "text/") && media != "text/xml":
		return bodyText, 5
	case media == "application/octet-stream", binary(media), strings.HasSuffix(media, "/*"):
		return bodyBinary, 6
	default:
		return bodyNone, 7
	}
}

// binary reports whether content of a media type is no text.
func binary(media string) bool {
	top, sub, _ := strings.Cut(media, "/")
	return top == "image" || top == "audio" || top == "video" || top == "font" ||
		slices.Contains([]string{
			"pdf", "zip", "gzip", "x-gzip", "x-tar", "octet-stream", "cbor",
			"protobuf", "x-protobuf", "msgpack", "wasm",
		}, sub)
}

// body reads the body of an operation, and its arguments.
func (b *builder) body(o *operation) (*body, []*argument, error) {
	if b.swagger {
		return b.swaggerBody(o)
	}
	r, err := b.d.deref(o.node.get("requestBody"))
	if err != nil || !r.is('{') || o.method == "GET" || o.method == "HEAD" {
		return &body{}, nil, err // RFC 9110, 9.3.1: there is no body of GET
	}
	out := &body{required: r.get("required").yes()}
	var chosen node
	best := 7
	var offered []string
	for name, media := range r.get("content").each {
		name = mediaName(name)
		offered = append(offered, name)
		kind, rank := kindOf(name)
		if want := b.o.MediaTypes[o.key()]; want != "" {
			rank = 7
			if name == mediaName(want) && kind != bodyNone {
				rank = 0
			}
		}
		if rank < best {
			best, chosen = rank, media
			out.kind, out.media = kind, name
		}
	}
	if best == 7 {
		return b.noBody(o, out, offered)
	}
	if strings.Contains(out.media, "*") {
		out.media = map[bodyKind]string{bodyJSON: "application/json", bodyText: "text/plain"}[out.kind]
	}
	args, err := b.bodyArguments(out, chosen, r.get("description").text())
	return out, args, err
}

// noBody handles a body without a media type that can be written.
func (b *builder) noBody(o *operation, out *body, offered []string) (*body, []*argument, error) {
	if len(offered) == 0 {
		return &body{}, nil, nil
	}
	err := refusal("its body must be one of: " + clip(strings.Join(offered, ", ")))
	if out.required {
		return nil, nil, err
	}
	b.warn(o, "the optional body is left out: %v", err)
	return &body{}, nil, nil
}

// bodyArguments makes the arguments of a body: the properties of an object side by side, and
// one argument of anything else.
func (b *builder) bodyArguments(out *body, media node, description string) ([]*argument, error) {
	schema := media.get("schema")
	switch out.kind {
	case bodyText:
		if !schema.there() {
			schema = node{raw: []byte(`{"type":"string"}`)}
		}
		return b.wholeBody(out, schema, description)
	case bodyBinary:
		a := &argument{wire: "body", in: inWhole, required: out.required, file: true}
		a.schema.raw = fmt.Appendf(nil, fileSchema, "")
		out.whole = true
		return []*argument{a}, nil
	}
	props, ok, err := b.flatten(schema, 0)
	if err != nil {
		return nil, err
	}
	if !ok {
		return b.wholeBody(out, schema, description)
	}
	var args []*argument
	for _, p := range props {
		a := &argument{wire: p.name, in: inBody, required: out.required && p.required, explode: true}
		if a.schema, err = b.property(out, a, p, media.get("encoding").get(p.name)); err != nil {
			return nil, err
		}
		args = append(args, a)
	}
	return args, nil
}

func (b *builder) wholeBody(out *body, schema node, description string) ([]*argument, error) {
	out.whole = true
	a := &argument{wire: "body", in: inWhole, required: out.required}
	var err error
	a.schema, err = b.shaper.fragment(schema, description)
	return []*argument{a}, err
}

// property makes the schema of a property, and reads how it is written in a form.
func (b *builder) property(out *body, a *argument, p property, encoding node) (fragment, error) {
	if out.kind == bodyForm || out.kind == bodyMultipart {
		if s := encoding.get("style").text(); s != "" {
			a.style = styles()[s]
			a.explode = a.style == styleForm
		}
		if e := encoding.get("explode"); e.there() {
			a.explode = e.yes()
		}
		a.reserved = encoding.get("allowReserved").yes()
		a.media = encoding.get("contentType").text()
		if media, _, _ := strings.Cut(a.media, ","); strings.Contains(media, "*") {
			a.media = ""
		} else {
			a.media = mediaName(media)
		}
	}
	if len(p.schemas) == 1 && out.kind == bodyMultipart {
		if schema := b.fileSchema(p.schemas[0]); schema != nil {
			a.file = true
			return fragment{raw: schema}, nil
		}
	}
	if len(p.schemas) == 1 {
		return b.shaper.fragment(p.schemas[0], "")
	}
	all := fragment{raw: []byte(`{"allOf":[`)} // the property is in several branches of an allOf
	for i, s := range p.schemas {
		f, err := b.shaper.fragment(s, "")
		if err != nil {
			return all, err
		}
		if i > 0 {
			all.raw = append(all.raw, ',')
		}
		all.raw = append(all.raw, f.raw...)
		all.refs = append(all.refs, f.refs...)
	}
	all.raw = append(all.raw, "]}"...)
	return all, nil
}

// fileSchema returns the schema of a file, or of a list of files, if a property is one.
func (b *builder) fileSchema(schema node) []byte {
	schema, err := b.d.deref(schema)
	if err != nil {
		return nil
	}
	one, list := schema, false
	if schema.get("type").text() == "array" {
		list = true
		if one, err = b.d.deref(schema.get("items")); err != nil {
			return nil
		}
	}
	media := one.get("contentMediaType").text()
	if one.get("format").text() != "binary" && one.get("type").text() != "file" &&
		(media == "" || one.get("contentEncoding").there() || isJSON(media)) {
		return nil
	}
	w := schemaWriter{shaper: b.shaper}
	w.open()
	w.description(schema)
	described := string(w.out[1:])
	if described != "" {
		described = "," + described
	}
	if !list {
		return fmt.Appendf(nil, fileSchema, described)
	}
	return fmt.Appendf(nil, `{"type":"array"%s,"items":%s}`, described, fmt.Sprintf(fileSchema, ""))
}

// A property of an object that is written as arguments.
type property struct {
	name     string
	required bool
	schemas  []node
}

// flatten returns the properties of a schema that is one object and nothing else. An allOf of
// such objects is one, too.
func (b *builder) flatten(schema node, depth int) (props []property, ok bool, err error) {
	if schema, err = b.d.deref(schema); err != nil || depth > maxSchemaNesting ||
		!plainObject(schema) {
		return nil, false, err
	}
	if err := b.shaper.spend(schema); err != nil {
		return nil, false, err
	}
	required := schema.get("required").texts()
	hidden := (&schemaWriter{shaper: b.shaper}).hidden(schema, 0)
	for name, value := range schema.get("properties").each {
		if unclean(name) {
			return nil, false, fmt.Errorf("the property %q %w", clip(name), errName)
		}
		if !hidden[name] {
			props = addProperty(props, property{name, false, []node{value}})
		}
	}
	for _, branch := range schema.get("allOf").items() {
		more, ok, err := b.flatten(branch, depth+1)
		if err != nil || !ok && !b.requiresOnly(branch) {
			return nil, false, err
		}
		for _, p := range more {
			if !hidden[p.name] {
				props = addProperty(props, p)
			}
		}
		if target, err := b.d.deref(branch); err == nil {
			required = append(required, target.get("required").texts()...)
		}
	}
	for i := range props {
		props[i].required = props[i].required || slices.Contains(required, props[i].name)
	}
	return props, len(props) > 0, nil
}

// plainObject reports whether a schema says of an object which properties it has, and no more than
// arguments side by side can say.
func plainObject(schema node) bool {
	for _, k := range []string{
		"oneOf", "anyOf", "not", "if", "patternProperties", "enum", "const",
		"propertyNames", "minProperties", "dependentSchemas",
	} {
		if schema.get(k).there() {
			return false
		}
	}
	if a := schema.get("additionalProperties"); a.is('{') && string(compact(a.raw)) != "{}" {
		return false
	}
	t := schema.get("type")
	return !t.there() || t.text() == "object"
}

// requiresOnly reports whether a branch of an allOf says nothing but which properties there
// must be.
func (b *builder) requiresOnly(branch node) bool {
	branch, err := b.d.deref(branch)
	if err != nil || !branch.is('{') {
		return false
	}
	for name := range branch.each {
		if !slices.Contains([]string{"required", "type", "description", "title", "example"}, name) {
			return false
		}
	}
	return true
}

func addProperty(props []property, p property) []property {
	for i := range props {
		if props[i].name == p.name {
			if !slices.ContainsFunc(props[i].schemas, func(n node) bool {
				return slices.ContainsFunc(p.schemas, func(m node) bool {
					return string(m.raw) == string(n.raw)
				})
			}) {
				props[i].schemas = append(props[i].schemas, p.schemas...)
			}
			props[i].required = props[i].required || p.required
			return props
		}
	}
	return append(props, p)
}

// swaggerBody reads the body of an operation of Swagger 2.0, which is among its parameters.
func (b *builder) swaggerBody(o *operation) (*body, []*argument, error) {
	params, err := b.parameters(o)
	if err != nil {
		return nil, nil, err
	}
	consumes := o.node.get("consumes").texts()
	if len(consumes) == 0 {
		consumes = b.top("consumes").texts()
	}
	out := &body{}
	var args []*argument
	for _, p := range params {
		switch p.get("in").text() {
		case "body":
			out.required = p.get("required").yes()
			out.kind, out.media = bestKind(consumes)
			if out.kind == bodyNone {
				return b.noBody(o, out, consumes)
			}
			args, err = b.bodyArguments(out, p, p.get("description").text())
			return out, args, err
		case "formData":
			a := &argument{wire: p.get("name").text(), in: inBody, required: p.get("required").yes()}
			if err := a.collection(p.get("collectionFormat").text()); err != nil {
				return nil, nil, err
			}
			out.kind, out.media = max(out.kind, bodyForm), "application/x-www-form-urlencoded"
			if a.file = p.get("type").text() == "file"; a.file ||
				slices.Contains(consumes, "multipart/form-data") {
				out.kind = bodyMultipart
			}
			if a.file {
				a.schema.raw = b.fileSchema(p)
			} else if a.schema, err = b.shaper.fragment(p, ""); err != nil {
				return nil, nil, err
			}
			args = append(args, a)
		}
	}
	if out.kind == bodyMultipart {
		out.media = "multipart/form-data"
	}
	return out, args, nil
}

// bestKind chooses among media types. None means JSON.
func bestKind(offered []string) (kind bodyKind, media string) {
	if len(offered) == 0 {
		return bodyJSON, "application/json"
	}
	best := 7
	for _, m := range offered {
		if k, rank := kindOf(mediaName(m)); rank < best {
			best, kind, media = rank, k, mediaName(m)
		}
	}
	if media == "*/*" {
		media = "application/json"
	}
	return kind, media
}
