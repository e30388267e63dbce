package openapi

import (
	"bytes"
	"cmp"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"mime/multipart"
	"net/http"
	"net/textproto"
	"net/url"
	"slices"
	"strings"

	"github.com/farcall-dev/farcall"
	"github.com/farcall-dev/farcall/internal/scan"
	"github.com/farcall-dev/farcall/internal/validate"
	"github.com/farcall-dev/farcall/jsonrpc"
	"github.com/farcall-dev/farcall/mcp"
)

const maxFile = 8 << 20 // bytes of a file in an argument

// A plan is how a call becomes a request. It is made when the document is read, and does not
// change.
type plan struct {
	sender   *sender
	method   string
	base     *url.URL
	segments []segment // of the path
	query    string    // of the path, in the document
	args     []*argument
	byName   map[string]int
	body     *body
	output   *validate.Schema // of the result; nil: there is none
	open     bool             // no credentials are sent
	indexed  bool
}

// A segment is a literal of a path, and the argument after it: -1 is none.
type segment struct {
	literal string
	arg     int
}

func (b *builder) plan(o *operation, base *url.URL, body *body, args []*argument) (*plan, error) {
	p := &plan{
		sender: b.api.sender, method: o.method, base: base, args: args, body: body,
		byName: map[string]int{}, open: b.open(o), indexed: b.o.IndexArrays,
	}
	for i, a := range args {
		p.byName[a.name] = i
		a.schema.refs = nil // so that the document can go
	}
	path, _, _ := strings.Cut(o.path, "#") // a fragment tells operations of one path apart
	path, p.query, _ = strings.Cut(path, "?")
	if unclean(path) || !strings.HasPrefix(path, "/") {
		return nil, refusal("its path must begin with a slash and have no control characters")
	}
	return p, p.parse(path)
}

// parse reads a path with its parameters in braces.
func (p *plan) parse(path string) error {
	used := map[int]bool{}
	for path != "" {
		literal, rest, found := strings.Cut(path, "{")
		s := segment{(&url.URL{Path: literal}).EscapedPath(), -1}
		path = ""
		if found {
			name, after, closed := strings.Cut(rest, "}")
			if !closed {
				return refusal("its path has a brace without its partner")
			}
			for i, a := range p.args {
				if a.in == inPath && a.wire == name {
					s.arg = i
					used[i] = true
				}
			}
			if s.arg < 0 {
				return refusal("its path has {" + clip(name) + "}, and there is no such path parameter")
			}
			path = after
		}
		p.segments = append(p.segments, s)
	}
	for i, a := range p.args {
		if a.in == inPath && !used[i] {
			return refusal("its path parameter " + clip(a.wire) + " is not in the path")
		}
	}
	return nil
}

// call is the handler of a tool.
func (p *plan) call(ctx context.Context, arguments jsonrpc.Raw) (*mcp.ToolResult, error) {
	values := make([][]byte, len(p.args))
	for name, value := range scan.Members(arguments) {
		if i, ok := p.byName[string(name)]; ok {
			values[i] = value
		}
	}
	r, err := p.request(ctx, values)
	if err != nil {
		return nil, err
	}
	return p.send(r, values)
}

func argumentError(a *argument, err error) error {
	return fmt.Errorf("the argument %s: %w", a.name, err)
}

// request makes the request of a call.
func (p *plan) request(ctx context.Context, values [][]byte) (*http.Request, error) {
	path, err := p.path(values)
	if err != nil {
		return nil, err
	}
	content, media, err := p.content(values)
	if err != nil {
		return nil, err
	}
	address := p.base.Scheme + "://" + p.base.Host + p.base.EscapedPath() + path
	if query := p.queryOf(values); query != "" {
		address += "?" + query
	}
	var r *http.Request
	if content == nil {
		r, err = http.NewRequestWithContext(ctx, p.method, address, http.NoBody)
	} else {
		r, err = http.NewRequestWithContext(ctx, p.method, address, bytes.NewReader(content))
	}
	if err != nil {
		return nil, errors.New("the arguments make no valid address")
	}
	// Whatever the arguments are, a request stays below the base.
	if r.URL.Scheme != p.base.Scheme || r.URL.Host != p.base.Host || r.URL.User != nil ||
		!strings.HasPrefix(r.URL.EscapedPath(), p.base.EscapedPath()+"/") {
		return nil, errors.New("the arguments lead out of the API")
	}
	if media != "" {
		r.Header.Set("Content-Type", media)
	}
	r.Header.Set("Accept", "application/json, text/*;q=0.9, */*;q=0.8")
	return r, p.headers(r, values)
}

func (p *plan) path(values [][]byte) (string, error) {
	var b strings.Builder
	for _, s := range p.segments {
		b.WriteString(s.literal)
		if s.arg < 0 {
			continue
		}
		a := p.args[s.arg]
		if v := values[s.arg]; v == nil || v[0] == 'n' {
			return "", argumentError(a, errors.New("it must not be null"))
		}
		if err := checkSegment(a.template(values[s.arg], asIs)); err != nil {
			return "", argumentError(a, err)
		}
		list, _ := parts("", values[s.arg], asIs)
		for _, part := range list {
			if err := checkSegment(part.value); err != nil {
				return "", argumentError(a, err)
			}
		}
		b.WriteString(a.template(values[s.arg], escapeSegment))
	}
	return b.String(), nil
}

func (p *plan) queryOf(values [][]byte) string {
	query := p.query
	for i, a := range p.args {
		if a.in != inQuery || values[i] == nil {
			continue
		}
		escape := escaper(escapeSegment)
		if a.reserved {
			escape = escapeReserved
		}
		query = appendPairs(query, a.pairs(values[i], escape, p.indexed))
	}
	return query
}

func appendPairs(query string, list []pair) string {
	for _, q := range list {
		if query != "" {
			query += "&"
		}
		query += q.name + "=" + q.value
	}
	return query
}

func (p *plan) headers(r *http.Request, values [][]byte) error {
	var cookies []string
	for i, a := range p.args {
		if values[i] == nil || a.in != inHeader && a.in != inCookie || string(values[i]) == "null" {
			continue
		}
		if a.in == inHeader {
			value := a.template(values[i], asIs)
			if a.json {
				value = string(compact(values[i]))
			}
			if strings.ContainsFunc(value, func(r rune) bool { return r < ' ' && r != '\t' || r == 0x7f }) {
				return argumentError(a, errors.New("it must have no control characters"))
			}
			r.Header.Set(a.wire, value)
			continue
		}
		for _, c := range a.pairs(values[i], asIs, p.indexed) {
			if strings.ContainsFunc(c.name+c.value, func(r rune) bool {
				return r < ' ' || r >= 0x7f || r == ';'
			}) {
				return argumentError(a,
					errors.New("it must have no semicolon, and only printable ASCII characters"))
			}
			cookies = append(cookies, c.name+"="+c.value)
		}
	}
	if cookies != nil {
		r.Header.Set("Cookie", strings.Join(cookies, "; "))
	}
	farcall.TraceFrom(r.Context()).SetHeader(r.Header)
	p.sender.addHeader(r, p.open)
	return nil
}

// content writes the body. nil is none.
func (p *plan) content(values [][]byte) (content []byte, media string, err error) {
	if p.body.kind == bodyNone {
		return nil, "", nil
	}
	if p.body.whole {
		return p.wholeContent(values)
	}
	given := false
	for i, a := range p.args {
		given = given || a.in == inBody && values[i] != nil
	}
	if !given && !p.body.required {
		return nil, "", nil
	}
	switch p.body.kind {
	case bodyForm:
		form := ""
		for i, a := range p.args {
			if a.in == inBody && values[i] != nil {
				form = appendPairs(form, a.formPairs(values[i], p.indexed))
			}
		}
		return []byte(form), p.body.media, nil
	case bodyMultipart:
		return p.multipart(values)
	}
	content = []byte{'{'}
	for i, a := range p.args {
		if a.in == inBody && values[i] != nil {
			content = scan.AppendMember(content, a.wire, values[i])
		}
	}
	return append(content, '}'), p.body.media, nil
}

// formPairs writes a property of a form: what is no list of plain values is JSON, unless the
// document says how it nests (OpenAPI 3.1, 4.8.15.1).
func (a *argument) formPairs(raw []byte, indexed bool) []pair {
	if raw[0] == '{' && a.style == styleForm {
		return []pair{{escapeSegment(a.wire), escapeSegment(string(compact(raw)))}}
	}
	escape := escaper(escapeSegment)
	if a.reserved {
		escape = escapeReserved
	}
	return a.pairs(raw, escape, indexed)
}

func (p *plan) wholeContent(values [][]byte) (content []byte, media string, err error) {
	at := len(p.args) - 1 // the body is the last argument
	raw := values[at]
	if raw == nil {
		return nil, "", nil
	}
	switch p.body.kind {
	case bodyText:
		return []byte(scalar(raw)), p.body.media, nil
	case bodyBinary:
		f, err := readFileArgument(raw)
		if err != nil {
			return nil, "", argumentError(p.args[at], err)
		}
		return f.data, cmp.Or(f.media, p.body.media, "application/octet-stream"), nil
	case bodyForm, bodyMultipart:
		return p.wholeForm(raw)
	default:
		// a transport may read on when the handler has returned
		return bytes.Clone(raw), p.body.media, nil
	}
}

// wholeForm writes a form that is one argument, by the rules that hold without a document.
func (p *plan) wholeForm(raw []byte) (content []byte, media string, err error) {
	whole := &plan{
		body:    &body{kind: p.body.kind, media: p.body.media, required: true},
		indexed: p.indexed,
	}
	var values [][]byte
	for name, value := range scan.Members(raw) {
		whole.args = append(whole.args,
			&argument{name: string(name), wire: string(name), in: inBody, explode: true})
		values = append(values, value)
	}
	return whole.content(values)
}

// multipart writes a body of multipart/form-data (RFC 7578).
func (p *plan) multipart(values [][]byte) (content []byte, media string, err error) {
	var buf bytes.Buffer
	w := multipart.NewWriter(&buf)
	for i, a := range p.args {
		if a.in != inBody || values[i] == nil || string(values[i]) == "null" {
			continue
		}
		items := [][]byte{values[i]}
		if values[i][0] == '[' && (a.file || a.media == "") {
			items = slices.Collect(scan.Elements(values[i]))
		}
		for _, item := range items {
			if err := a.part(w, item); err != nil {
				return nil, "", argumentError(a, err)
			}
		}
	}
	if err := w.Close(); err != nil {
		return nil, "", err
	}
	return buf.Bytes(), w.FormDataContentType(), nil
}

// part writes one part of a multipart body.
func (a *argument) part(w *multipart.Writer, raw []byte) error {
	h := textproto.MIMEHeader{}
	disposition := `form-data; name="` + quoteParameter(a.wire) + `"`
	data, media := []byte(scalar(raw)), a.media
	if a.file {
		f, err := readFileArgument(raw)
		if err != nil {
			return err
		}
		data, media = f.data, cmp.Or(f.media, media, "application/octet-stream")
		disposition += `; filename="` + quoteParameter(cmp.Or(f.name, "file")) + `"`
	} else if media == "" && (raw[0] == '{' || raw[0] == '[') {
		media = "application/json"
	}
	h.Set("Content-Disposition", disposition)
	if media != "" {
		h.Set("Content-Type", media)
	}
	part, err := w.CreatePart(h)
	if err != nil {
		return err
	}
	_, err = part.Write(data)
	return err
}

// quoteParameter writes a name so that it cannot end its parameter, nor its header.
func quoteParameter(s string) string {
	return strings.NewReplacer(`"`, "%22", "\r", "%0D", "\n", "%0A", "\\", "%5C").Replace(s)
}

// A fileArgument is a file as models give one.
type fileArgument struct {
	data        []byte
	name, media string
}

func readFileArgument(raw []byte) (f fileArgument, err error) {
	text := scalar(orNull(scan.Member(raw, "data")))
	if base64.StdEncoding.DecodedLen(len(text)) > maxFile+2 {
		return f, fmt.Errorf("the file has more than %d bytes", maxFile)
	}
	if f.data, err = base64.StdEncoding.DecodeString(text); err != nil {
		return f, errors.New("data must be base64")
	}
	if name := scan.Member(raw, "filename"); name != nil {
		f.name = scalar(name)
	}
	if media := scan.Member(raw, "mime_type"); media != nil {
		f.media = scalar(media)
		if strings.ContainsFunc(f.media, func(r rune) bool { return r < ' ' || r >= 0x7f }) ||
			!strings.Contains(f.media, "/") {
			return f, errors.New("mime_type must be one, such as image/png")
		}
	}
	return f, nil
}

func orNull(raw []byte) []byte {
	if raw == nil {
		return []byte("null")
	}
	return raw
}
