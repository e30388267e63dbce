package openapi

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"iter"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/farcall-dev/farcall/internal/scan"
	"github.com/farcall-dev/farcall/internal/validate"
	"github.com/farcall-dev/farcall/mcp"
)

const (
	maxMedia       = 1 << 20 // bytes of an image or a sound
	maxProblem     = 2000    // bytes of what an API says about an error
	maxSchemaHints = 2000
)

// send sends a request and makes a result of the response.
func (p *plan) send(r *http.Request, values [][]byte) (*mcp.ToolResult, error) {
	ctx := r.Context()
	count := 0.0
	resp, err := p.sender.do(r, p.open, func(data string) error {
		count++
		return mcp.Progress(ctx, count, 0, shorten(clean(data), 1000))
	})
	if err != nil {
		return nil, err
	}
	switch {
	case resp.StatusCode >= 400:
		return p.failed(resp, values), nil
	case resp.StatusCode >= 300:
		return errorResult(fmt.Sprintf("%s: the API redirects to %s, which is not followed",
			clip(resp.Status), clip(resp.Header.Get("Location")))), nil
	}
	return p.fitting(p.sender.succeeded(resp)), nil
}

func errorResult(text string) *mcp.ToolResult {
	return &mcp.ToolResult{Content: []mcp.Content{mcp.Text(text)}, IsError: true}
}

func textResult(text string) *mcp.ToolResult {
	return &mcp.ToolResult{Content: []mcp.Content{mcp.Text(text)}}
}

// succeeded makes a result of a response of 2xx.
func (s *sender) succeeded(resp *response) *mcp.ToolResult {
	top, _, _ := strings.Cut(resp.media, "/")
	switch {
	case len(resp.body) == 0:
		return textResult(clip(resp.Status))
	case !binary(resp.media) && utf8.Valid(resp.body), !resp.whole && utf8.Valid(trimRune(resp.body)):
		return s.text(resp)
	case !resp.whole:
		return errorResult(fmt.Sprintf("%s: the response is %s of more than %d bytes", clip(resp.Status),
			clip(resp.media), len(resp.body)))
	case top == "image" && len(resp.body) <= maxMedia:
		return &mcp.ToolResult{Content: []mcp.Content{mcp.Image(resp.body, resp.media)}}
	case top == "audio" && len(resp.body) <= maxMedia:
		return &mcp.ToolResult{Content: []mcp.Content{mcp.Audio(resp.body, resp.media)}}
	default:
		return &mcp.ToolResult{Content: []mcp.Content{mcp.Embed(mcp.ResourceContents{
			URI: resp.Request.URL.String(), MIMEType: resp.media, Blob: resp.body,
		})}}
	}
}

// trimRune removes the beginning of a character from the end.
func trimRune(b []byte) []byte {
	for i := 1; i <= utf8.UTFMax && i <= len(b); i++ {
		if utf8.RuneStart(b[len(b)-i]) {
			if !utf8.FullRune(b[len(b)-i:]) {
				return b[:len(b)-i]
			}
			break
		}
	}
	return b
}

// text makes a result of a text. JSON is structured content, too; where it is cut, both are.
func (s *sender) text(resp *response) *mcp.ToolResult {
	body := bytes.TrimSpace(resp.body)
	if resp.whole && len(body) > 0 && (isJSON(resp.media) || body[0] == '{' || body[0] == '[') {
		if _, fault := scan.Text(body, maxNesting); fault == scan.OK {
			return s.structured(body)
		}
	}
	if len(resp.body) <= s.maxText && resp.whole {
		return textResult(string(resp.body))
	}
	shown := trimRune(resp.body[:min(len(resp.body), s.maxText)])
	return textResult(fmt.Sprintf("%s\n… the rest of %d bytes is left out", shown, len(resp.body)))
}

func (s *sender) structured(body []byte) *mcp.ToolResult {
	note := ""
	if len(body) > s.maxText {
		body = compact(body)
	}
	if len(body) > s.maxText {
		cut, left, all := cutItems(body, s.maxText)
		if cut == nil {
			return textResult(
				fmt.Sprintf("%s\n… the rest of %d bytes is left out", trimRune(body[:s.maxText]), len(body)))
		}
		body = cut
		note = fmt.Sprintf("\n… %d of %d items left out; narrow the request, or ask for another page",
			left, all)
	}
	return &mcp.ToolResult{
		Content:           []mcp.Content{mcp.Text(string(body) + note)},
		StructuredContent: body,
	}
}

// cutItems leaves items out of the end of an array, or of the largest array of an object, so that
// the rest is no longer than limit. It returns nil when that does not help.
func cutItems(body []byte, limit int) (out []byte, left, all int) {
	if body[0] == '[' {
		return cutArray(nil, body, limit)
	}
	var largest []byte
	at, n := -1, 0
	for _, value := range scan.Members(body) {
		if value[0] == '[' && len(value) > len(largest) {
			largest, at = value, n
		}
		n++
	}
	room := limit - (len(body) - len(largest))
	if at < 0 || room < 0 {
		return nil, 0, 0
	}
	out, n = []byte{'{'}, 0
	for name, value := range scan.Members(body) {
		out = scan.AppendMember(out, name, nil)
		if n != at {
			out = append(out, value...)
		} else if out, left, all = cutArray(out, value, room); out == nil {
			return nil, 0, 0
		}
		n++
	}
	return append(out, '}'), left, all
}

// cutArray appends as many items of an array as there is room for, and returns nil when there is
// none for the first.
func cutArray(out, list []byte, room int) (_ []byte, left, all int) {
	start := len(out)
	out = append(out, '[')
	for item := range scan.Elements(list) {
		all++
		if left == 0 && len(out)-start+len(item)+2 <= room {
			if len(out)-start > 1 {
				out = append(out, ',')
			}
			out = append(out, item...)
		} else {
			left++
		}
	}
	if left == all {
		return nil, 0, 0
	}
	return append(out, ']'), left, all
}

// failed makes a result of a response of 400 and above, for the model to do better.
func (p *plan) failed(resp *response, values [][]byte) *mcp.ToolResult {
	var b strings.Builder
	b.WriteString(clip(resp.Status))
	if after := resp.Header.Get("Retry-After"); after != "" {
		b.WriteString(" (retry after " + clip(after) + ")")
	}
	body := bytes.TrimSpace(resp.body)
	switch {
	case len(body) == 0:
	case resp.media == "application/problem+json": // RFC 9457
		b.WriteString(problemText(body))
	case binary(resp.media) || !utf8.Valid(trimRune(body)):
	case resp.media == "text/html":
		b.WriteString("\n" + shorten(clean(htmlTag.ReplaceAllString(string(body), " ")), 500))
	default:
		b.WriteString("\n" + string(trimRune(body[:min(len(body), maxProblem)])))
	}
	if resp.StatusCode == http.StatusBadRequest || resp.StatusCode == http.StatusUnprocessableEntity {
		b.WriteString(p.schemaHints(string(body), values))
	}
	return errorResult(b.String())
}

func problemText(body []byte) string {
	var b strings.Builder
	for _, name := range []string{"title", "detail"} {
		if v := scan.Member(body, name); len(v) > 0 && v[0] == '"' {
			b.WriteString("\n" + clean(string(scan.Unquote(v))))
		}
	}
	rest := 0
	for name, value := range scan.Members(body) {
		switch string(name) {
		case "title", "detail", "status", "type", "instance":
		default:
			if rest += len(value); rest < maxProblem {
				fmt.Fprintf(&b, "\n%s: %s", clip(string(name)), value)
			}
		}
	}
	return b.String()
}

// schemaHints shows the schemas of the arguments that the API complains about.
func (p *plan) schemaHints(body string, values [][]byte) string {
	var b strings.Builder
	for i, a := range p.args {
		missing := values[i] == nil && !a.required
		if len(a.wire) < 2 || missing && !strings.Contains(body, `"`+a.wire+`"`) ||
			!mentions(body, a.wire) {
			continue
		}
		if b.Len()+len(a.schema.raw) > maxSchemaHints {
			break
		}
		fmt.Fprintf(&b, "\nThe argument %s: %s", a.name, a.schema.raw)
	}
	return b.String()
}

// mentions reports whether a text has a name as a word.
func mentions(text, name string) bool {
	letter := func(i int) bool {
		return i >= 0 && i < len(text) && (text[i] == '_' || text[i] >= '0' && text[i] <= '9' ||
			text[i]|0x20 >= 'a' && text[i]|0x20 <= 'z')
	}
	for at := 0; ; {
		i := strings.Index(text[at:], name)
		if i < 0 {
			return false
		}
		i += at
		if !letter(i-1) && !letter(i+len(name)) {
			return true
		}
		at = i + len(name)
	}
}

// readEvents calls event with the data of each event of a stream.
func readEvents(in io.Reader, event func(data string) error) error {
	lines := bufio.NewScanner(in)
	lines.Buffer(nil, maxTextBody)
	data := ""
	for lines.Scan() {
		line := lines.Text()
		if value, ok := strings.CutPrefix(line, "data:"); ok {
			if data != "" {
				data += "\n"
			}
			data += strings.TrimPrefix(value, " ")
		}
		if line == "" && data != "" {
			if err := event(data); err != nil {
				return err
			}
			data = ""
		}
	}
	if err := lines.Err(); !errors.Is(err, bufio.ErrTooLong) {
		return err
	}
	return nil
}

var (
	markdownLink = regexp.MustCompile(`!?\[([^\]\n]*)\]\([^)\n]*\)`)
	htmlTag      = regexp.MustCompile(`</?[a-zA-Z][^<>]*>`)
)

// clean returns a text of a document for models and people: in one line, without control,
// bidirectional and invisible characters, which could hide what it says.
func clean(s string) string {
	var b strings.Builder
	space := false
	for _, r := range strings.ToValidUTF8(s, "\uFFFD") {
		switch {
		case unicode.IsSpace(r):
			space = true
			continue
		case hidden(r):
			continue
		}
		if space && b.Len() > 0 {
			b.WriteByte(' ')
		}
		space = false
		b.WriteRune(r)
	}
	return b.String()
}

// hidden reports whether a character is not seen, or changes how others are seen.
func hidden(r rune) bool {
	return unicode.IsControl(r) || unicode.Is(unicode.Cf, r) && r != '\u200d' ||
		unicode.Is(unicode.Co, r) || unicode.Is(unicode.Noncharacter_Code_Point, r)
}

// unclean reports whether a name holds characters that clean leaves out.
func unclean(name string) bool {
	return !utf8.ValidString(name) || strings.ContainsFunc(name, hidden)
}

// paragraph returns the first paragraph of a description in Markdown, without links and tags.
func paragraph(s string) string {
	s = strings.TrimSpace(strings.ReplaceAll(s, "\r\n", "\n"))
	s, _, _ = strings.Cut(s, "\n\n")
	s = clean(htmlTag.ReplaceAllString(markdownLink.ReplaceAllString(s, "$1"), " "))
	return strings.NewReplacer(" .", ".", " ,", ",").Replace(s)
}

// shorten cuts a text at the end of a word.
func shorten(s string, limit int) string {
	if utf8.RuneCountInString(s) <= limit {
		return s
	}
	cut := 0
	for i, n := 0, 0; n < limit-1; n++ {
		_, size := utf8.DecodeRuneInString(s[i:])
		i += size
		cut = i
	}
	if at := strings.LastIndexByte(s[:cut], ' '); at > cut/2 {
		cut = at
	}
	return strings.TrimRight(s[:cut], " ,;:") + "…"
}

const (
	maxLinks     = 5   // that a description names
	maxLinksText = 400 // bytes of them
)

// links names the tools that go on from a result of an operation: the links of its successful
// responses.
func (b *builder) links(o *operation) string {
	var hints []string
	for r := range b.successes(o) {
		for _, link := range r.get("links").each {
			link, err := b.d.deref(link)
			to := b.linked(link)
			if err != nil || to == nil {
				continue
			}
			var values []string
			for name, value := range link.get("parameters").each {
				name = name[strings.LastIndexByte(name, '.')+1:] // it may be "path.id"
				values = append(values, clean(name)+" = "+shorten(clean(value.text()), 60))
				if len(values) == maxLinks {
					break
				}
			}
			hint := to.name + "(" + strings.Join(values, ", ") + ")"
			if !slices.Contains(hints, hint) {
				hints = append(hints, hint)
			}
			if len(hints) >= maxLinks {
				break
			}
		}
	}
	if len(hints) == 0 {
		return ""
	}
	return "\nThen: " + shorten(strings.Join(hints, "; "), maxLinksText)
}

// linked returns the operation that a link leads to, if it is a tool.
func (b *builder) linked(link node) *operation {
	id, ref := link.get("operationId").text(), link.get("operationRef").text()
	pointer := strings.NewReplacer("~", "~0", "/", "~1")
	for _, o := range b.chosen {
		if id != "" && o.id == id ||
			ref != "" && ref == "#/paths/"+pointer.Replace(o.path)+"/"+strings.ToLower(o.method) {
			return o
		}
	}
	return nil
}

// successes are the responses of 2xx.
func (b *builder) successes(o *operation) iter.Seq[node] {
	return func(yield func(response node) bool) {
		for status, r := range o.node.get("responses").each {
			if !strings.HasPrefix(status, "2") {
				continue
			}
			if r, err := b.d.deref(r); err == nil && !yield(r) {
				return
			}
		}
	}
}

// outputSchema returns the schema of a successful answer, where there is one kind of them and it is
// an object in JSON, with the components that it refers to. Nil: there is none that can be shown.
func (b *builder) outputSchema(o *operation) ([]byte, error) {
	var found node
	n := 0
	for r := range b.successes(o) {
		n++
		if b.swagger {
			found = r.get("schema")
			continue
		}
		for media, m := range r.get("content").each {
			if isJSON(mediaName(media)) {
				found = m.get("schema")
			} else {
				n++
			}
		}
	}
	if n != 1 || !found.there() {
		return nil, nil
	}
	schema, err := b.d.deref(found)
	object := schema.get("type").text() == "object" ||
		!schema.get("type").there() && schema.get("properties").there()
	if err != nil || !object {
		return nil, nil //nolint:nilerr // only the tool's results are not described
	}
	if b.answers == nil {
		b.answers = newShaper(b.d, b.o.Slim)
		b.answers.response = true
	}
	w := schemaWriter{shaper: b.answers}
	if err := w.schema(schema, 0); err != nil {
		return nil, err
	}
	if string(scan.Member(w.out, "type")) != `"object"` {
		w.out = append([]byte(`{"type":"object",`), w.out[1:]...)
	}
	w.out = w.out[:len(w.out)-1]
	if _, err := w.definitions(false); err != nil {
		return nil, err
	}
	w.close()
	if _, err := validate.Compile(w.out, validate.Limits{}); err != nil || len(w.out) > maxToolSchema {
		b.warn(o,
			"the schema of its answer is larger than %d bytes, or cannot be checked: it is not shown",
			maxToolSchema)
		return nil, nil //nolint:nilerr // as above
	}
	return w.out, nil
}

// fitting returns the result of a tool with an output schema: an error, with the text, when it does
// not fit.
func (p *plan) fitting(r *mcp.ToolResult) *mcp.ToolResult {
	if p.output == nil || r.IsError {
		return r
	}
	why := "it is no JSON object"
	if r.StructuredContent != nil {
		err := p.output.Validate(r.StructuredContent)
		if err == nil {
			return r
		}
		why = err.Error()
	}
	out := errorResult("The API's answer is not what its document says: " + shorten(clean(why), 300))
	out.Content = append(out.Content, r.Content...)
	return out
}

// ignored lists what a node says about MCP and what is not read.
func ignored(n node) (names []string) {
	known := map[string][]string{ // the members that are read
		"x-mcp": {"skip", "name", "title", "description", "annotations"},
		"x-speakeasy-mcp": {
			"disabled", "name", "title", "description", "readOnlyHint", "destructiveHint",
			"idempotentHint", "openWorldHint",
		},
	}
	for name, value := range n.each {
		if members, ok := known[name]; ok {
			for member := range value.each {
				if !slices.Contains(members, member) {
					names = append(names, clip(name+"."+member))
				}
			}
		} else if strings.HasPrefix(name, "x-mcp") || strings.HasPrefix(name, "x-fastmcp") ||
			strings.HasPrefix(name, "x-speakeasy-mcp") {
			names = append(names, clip(name))
		}
	}
	return names[:min(len(names), maxLinks)]
}

// warnIgnored reports what is not read of an operation, or of the document.
func (b *builder) warnIgnored(o *operation, n node) {
	if names := ignored(n); len(names) > 0 {
		b.warn(o, "%s",
			fmt.Sprintf("ignored: %s; x-mcp: {skip, name, title, description, annotations} is read",
				strings.Join(names, ", ")))
	}
}
