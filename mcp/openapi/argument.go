package openapi

import (
	"errors"
	"fmt"
	"net/textproto"
	"net/url"
	"slices"
	"strings"

	"github.com/farcall-dev/farcall/internal/scan"
)

// A location is where an argument goes in a request.
type location uint8

const (
	inPath location = iota
	inQuery
	inHeader
	inCookie
	inBody  // a property of the body
	inWhole // the body
)

func (l location) String() string {
	return [...]string{"path", "query", "header", "cookie", "body", "body"}[l]
}

// An argument of a tool, and how its value is written into the request.
type argument struct {
	name, wire string
	in         location
	required   bool
	style      style
	explode    bool
	reserved   bool   // characters such as / are sent as they are
	json       bool   // the value is sent as JSON
	file       bool   // the value is a file, or a list of files
	media      string // of a part of a multipart body
	schema     fragment
}

type style uint8

const (
	styleForm style = iota
	styleSimple
	styleLabel
	styleMatrix
	styleSpace
	stylePipe
	styleTab
	styleDeep
)

func styles() map[string]style {
	return map[string]style{
		"form": styleForm, "simple": styleSimple, "label": styleLabel, "matrix": styleMatrix,
		"spaceDelimited": styleSpace, "pipeDelimited": stylePipe, "deepObject": styleDeep,
	}
}

// A refusal is why an operation does not become a tool, or a part of it no argument.
type refusal string

func (r refusal) Error() string { return string(r) }

// arguments returns the parameters of an operation: of the path, then of the query, headers
// and cookies, each in the order of the document.
func (b *builder) arguments(o *operation) ([]*argument, error) {
	params, err := b.parameters(o)
	if err != nil {
		return nil, err
	}
	var args []*argument
	for _, p := range params {
		a, err := b.argument(o, p)
		if err != nil {
			return nil, fmt.Errorf("the parameter %s: %w", clip(p.get("name").text()), err)
		}
		if a != nil {
			args = append(args, a)
		}
	}
	slices.SortStableFunc(args, func(a, b *argument) int { return int(a.in) - int(b.in) })
	return args, nil
}

// argument reads a parameter. It returns nil for what is no argument.
func (b *builder) argument(o *operation, p node) (*argument, error) {
	a := &argument{wire: p.get("name").text(), required: p.get("required").yes()}
	switch p.get("in").text() {
	case "path":
		a.in, a.required, a.style = inPath, true, styleSimple
	case "query":
		a.in, a.explode = inQuery, true
	case "header":
		a.in, a.style = inHeader, styleSimple
	case "cookie":
		a.in, a.explode = inCookie, true
	case "body", "formData":
		return nil, nil // of Swagger 2.0: they are the body
	default:
		return nil, refusal("there is no such place as " + clip(p.get("in").text()))
	}
	if a.wire == "" || unclean(a.wire) {
		return nil, fmt.Errorf("its name %w", errName)
	}
	if b.withheld(a, p) {
		return nil, nil
	}
	if a.in == inHeader && !headerName(a.wire) || a.in == inCookie && !headerName(a.wire) {
		return nil, refusal("its name is none of a header")
	}
	if err := b.encode(a, p); err != nil {
		if !a.required {
			b.warn(o, "the optional parameter %s is left out: %v", clip(a.wire), err)
			return nil, nil
		}
		return nil, err
	}
	return a, b.describeArgument(a, p)
}

// withheld reports whether a parameter is no argument: because credentials and what belongs
// to HTTP itself are not for models, or because there is no need for it.
func (b *builder) withheld(a *argument, p node) bool {
	if !a.required && p.get("deprecated").yes() {
		return true
	}
	if b.credentials[a.in.String()+" "+strings.ToLower(a.wire)] { // a security scheme sends it
		return true
	}
	switch a.in {
	case inHeader:
		return forbiddenHeader(a.wire) || !a.required && !b.o.OptionalHeaders
	case inCookie:
		return !a.required
	}
	return false
}

// forbiddenHeader reports whether a header is not for arguments: OpenAPI 3.1, 4.8.12.1, says so
// of the first three; the others belong to HTTP and to proxies.
func forbiddenHeader(name string) bool {
	name = textproto.CanonicalMIMEHeaderKey(name)
	return slices.Contains([]string{
		"Accept", "Content-Type", "Authorization",
		"Host", "Cookie", "Content-Length", "Connection", "Te", "Trailer", "Transfer-Encoding", "Upgrade",
		"Keep-Alive", "Expect",
		"Forwarded", "Accept-Encoding", "Via",
	}, name) || strings.HasPrefix(name, "Proxy-") || strings.HasPrefix(name, "X-Forwarded-")
}

// headerName reports whether a name is one of RFC 9110, section 5.6.2.
func headerName(name string) bool {
	return name != "" && strings.IndexFunc(name, func(r rune) bool {
		return r <= ' ' || r >= 0x7f || strings.ContainsRune(`"(),/:;<=>?@[\]{}`, r)
	}) < 0
}

// encode reads how a value is written.
func (b *builder) encode(a *argument, p node) error {
	if content := p.get("content"); content.is('{') {
		for name := range content.each {
			if isJSON(mediaName(name)) {
				a.json = true
				return nil
			}
		}
		return refusal("it is not JSON")
	}
	if b.swagger {
		return a.collection(p.get("collectionFormat").text())
	}
	if name := p.get("style").text(); name != "" {
		s, ok := styles()[name]
		if !ok || !a.in.takes(s) {
			return refusal(fmt.Sprintf("the style %s is none of a %s", clip(name), a.in))
		}
		a.style = s
		a.explode = s == styleForm
	}
	if e := p.get("explode"); e.there() {
		a.explode = e.yes()
	}
	a.reserved = a.in == inQuery && p.get("allowReserved").yes()
	return nil
}

// takes reports whether a style is one of the location (OpenAPI 3.1, 4.8.12.3).
func (l location) takes(s style) bool {
	switch l {
	case inPath:
		return s == styleSimple || s == styleLabel || s == styleMatrix
	case inHeader:
		return s == styleSimple
	case inCookie:
		return s == styleForm
	default:
		return s == styleForm || s == styleSpace || s == stylePipe || s == styleDeep
	}
}

// collection reads collectionFormat of Swagger 2.0.
func (a *argument) collection(format string) error {
	a.explode = false
	switch format {
	case "", "csv":
	case "multi":
		a.explode = true
	case "ssv":
		a.style = styleSpace
	case "pipes":
		a.style = stylePipe
	case "tsv":
		a.style = styleTab
	default:
		return refusal("there is no collectionFormat " + clip(format))
	}
	return nil
}

// describeArgument makes the schema of a parameter.
func (b *builder) describeArgument(a *argument, p node) (err error) {
	schema := p.get("schema")
	if a.json {
		for name, media := range p.get("content").each {
			if isJSON(mediaName(name)) {
				schema = media.get("schema")
				break
			}
		}
	} else if b.swagger {
		schema = p // its keywords are the parameter's own
	}
	a.schema, err = b.shaper.fragment(schema, p.get("description").text())
	return err
}

// readCredentials collects the parameters that security schemes send.
func (b *builder) readCredentials() {
	schemes := b.top("components").get("securitySchemes")
	if b.swagger {
		schemes = b.top("securityDefinitions")
	}
	for _, s := range schemes.each {
		if s, err := b.d.deref(s); err == nil && s.get("type").text() == "apiKey" {
			b.credentials[s.get("in").text()+" "+strings.ToLower(s.get("name").text())] = true
		}
	}
}

// security says which security schemes an operation needs.
func (b *builder) security(o *operation) string {
	alternatives := o.node.get("security")
	if !alternatives.there() {
		alternatives = b.top("security")
	}
	var all []string
	for _, a := range alternatives.items() {
		var schemes []string
		for name, scopes := range a.each {
			if list := scopes.texts(); len(list) > 0 {
				name += "(" + strings.Join(list, " ") + ")"
			}
			schemes = append(schemes, clip(name))
		}
		if len(schemes) == 0 {
			schemes = []string{"none"}
		}
		all = append(all, strings.Join(schemes, " and "))
	}
	return strings.Join(all, ", or ")
}

// open reports whether an operation is for everyone: then no credentials are sent.
func (b *builder) open(o *operation) bool {
	s := o.node.get("security")
	return s.is('[') && len(s.items()) == 0
}

// mediaName returns a media type without its parameters.
func mediaName(s string) string {
	s, _, _ = strings.Cut(s, ";")
	return strings.ToLower(strings.TrimSpace(s))
}

func isJSON(media string) bool {
	return media == "application/json" || strings.HasSuffix(media, "+json") || media == "text/json" ||
		media == "*/*" || media == "application/*"
}

// An escaper writes a text so that it is no delimiter of where it goes.
type escaper func(string) string

func asIs(s string) string { return s }

// escapeSegment percent-encodes all but unreserved characters (RFC 3986, section 2.3).
func escapeSegment(s string) string {
	return strings.ReplaceAll(url.QueryEscape(s), "+", "%20")
}

// escapeReserved is escapeSegment, but keeps reserved characters that do not end a value.
func escapeReserved(s string) string {
	var b strings.Builder
	for i := range len(s) {
		if c := s[i]; strings.IndexByte(":/?@!$'()*,;", c) >= 0 {
			b.WriteByte(c)
		} else {
			b.WriteString(escapeSegment(s[i : i+1]))
		}
	}
	return b.String()
}

// scalar returns the text of a value: of a string its characters, of a number what is written, and
// of an array or object its JSON.
func scalar(raw []byte) string {
	if raw[0] == '"' {
		return string(scan.Unquote(raw))
	}
	return string(compact(raw))
}

// A pair is a name and a value, escaped.
type pair struct{ name, value string }

// parts returns a value, or the elements of an array, as pairs with an escaped name, or the members
// of an object.
func parts(name string, raw []byte, escape escaper) (list []pair, object bool) {
	add := func(name string, v []byte) {
		if string(v) != "null" {
			list = append(list, pair{name, escape(scalar(v))})
		}
	}
	switch raw[0] {
	case '[':
		for v := range scan.Elements(raw) {
			add(name, v)
		}
	case '{':
		for member, v := range scan.Members(raw) {
			add(escape(string(member)), v)
		}
		return list, true
	default:
		list = []pair{{name, escape(scalar(raw))}}
	}
	return list, false
}

// join writes pairs with a separator, and names before their values with another.
func join(list []pair, object bool, between, assign string) string {
	var b strings.Builder
	for i, p := range list {
		if i > 0 {
			b.WriteString(between)
		}
		if object {
			b.WriteString(p.name)
			b.WriteString(assign)
		}
		b.WriteString(p.value)
	}
	return b.String()
}

// template writes a value of a path or a header: RFC 6570, as OpenAPI 3.1, 4.8.12.4, uses it.
func (a *argument) template(raw []byte, escape escaper) string {
	name := escape(a.wire)
	list, object := parts(name, raw, escape)
	assign := ","
	if a.explode {
		assign = "="
	}
	switch a.style {
	case styleLabel:
		between := ","
		if a.explode {
			between = "."
		}
		return "." + join(list, object, between, assign)
	case styleMatrix:
		if !a.explode {
			return ";" + name + "=" + join(list, object, ",", ",")
		}
		return ";" + join(list, true, ";", "=")
	default:
		return join(list, object, ",", assign)
	}
}

// pairs writes a value of a query, a form or a cookie.
func (a *argument) pairs(raw []byte, escape escaper, indexed bool) []pair {
	name := escapeSegment(a.wire)
	if raw[0] == 'n' {
		return nil
	}
	if a.json {
		return []pair{{name, escape(string(compact(raw)))}}
	}
	if a.style == styleDeep {
		return deep(nil, name, raw, escape, indexed)
	}
	list, object := parts(name, raw, escape)
	if a.explode || len(list) == 0 || raw[0] != '[' && raw[0] != '{' {
		return list
	}
	between := map[style]string{
		styleForm: ",", styleSpace: "%20", stylePipe: "%7C",
		styleTab: "%09",
	}[a.style]
	return []pair{{name, join(list, object, between, between)}}
}

// deep writes a[b][c]=, and arrays as a[]= or a[0]=. OpenAPI leaves it open how values nest; this
// is what the APIs that use it read.
func deep(list []pair, name string, raw []byte, escape escaper, indexed bool) []pair {
	switch raw[0] {
	case 'n':
	case '{':
		for member, v := range scan.Members(raw) {
			list = deep(list, name+"["+escapeSegment(string(member))+"]", v, escape, indexed)
		}
	case '[':
		i := 0
		for v := range scan.Elements(raw) {
			index := "[]"
			if indexed {
				index = fmt.Sprintf("[%d]", i)
			}
			list = deep(list, name+index, v, escape, indexed)
			i++
		}
	default:
		list = append(list, pair{name, escape(scalar(raw))})
	}
	return list
}

// checkSegment refuses a value of a path that would lead to another path, also when a server in
// between decodes it once more.
func checkSegment(value string) error {
	decoded, err := url.PathUnescape(value)
	if err != nil {
		decoded = value
	}
	for _, v := range []string{value, decoded} {
		if v == "" {
			return errors.New("it must not be empty")
		}
		for segment := range strings.FieldsFuncSeq(v, func(r rune) bool {
			return r == '/' || r == '\\'
		}) {
			if segment == "." || segment == ".." {
				return errors.New("it must not have a segment of dots only")
			}
		}
		if strings.ContainsFunc(v, func(r rune) bool { return r < ' ' || r == 0x7f }) {
			return errors.New("it must have no control characters")
		}
	}
	return nil
}
