package openapi

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/farcall-dev/farcall/internal/fetch"
	"github.com/farcall-dev/farcall/internal/scan"
	"github.com/farcall-dev/farcall/internal/yamljson"
	"github.com/farcall-dev/farcall/mcp"
	"github.com/farcall-dev/farcall/mcp/mcphttp"
)

const (
	maxDocument   = 16 << 20
	maxFiles      = 5000
	maxFilesBytes = 64 << 20
	maxOperations = 5000
	warnTools     = 40
	fetchTimeout  = 20 * time.Second
)

// An API is an OpenAPI document as tools. It does not change, and may be used by any number of
// goroutines at once.
type API struct {
	title, version string
	files          []string
	digest         string
	tools          []*Tool
	problems       []Problem
	sender         *sender
}

// A Tool is one operation.
type Tool struct {
	mcp.Tool
	// Operation is its method and path, such as "GET /pets/{id}".
	Operation string
	// Renamed says why the name is not the operationId; "" when it is.
	Renamed string
	// Security names the security schemes of the document that the operation needs, such as "key, or
	// oauth(read)". They are never arguments: Options.Header or Options.Client has the credentials.
	Security string

	plan *plan
}

// A Problem is a part of a document that has no counterpart among the tools.
type Problem struct {
	// Operation is a method and path; "" when it is about the whole document.
	Operation string
	Message   string
	// Skipped: the operation is no tool.
	Skipped bool
}

func (p Problem) String() string {
	switch {
	case p.Operation == "":
		return p.Message
	case p.Skipped:
		return p.Operation + ": no tool: " + p.Message
	default:
		return p.Operation + ": " + p.Message
	}
}

// New reads a document, in JSON or YAML. It fails when the document as a whole cannot be used,
// refers to other documents, or makes more tools than Options.MaxTools. A single operation that
// cannot become a tool is a [Problem].
func New(doc []byte, o *Options) (*API, error) {
	return load(newDocument(), doc, &url.URL{}, o)
}

// Open reads a document from a file. It may refer to files in its folder and below.
func Open(name string, o *Options) (*API, error) {
	root, err := os.OpenRoot(filepath.Dir(name))
	if err != nil {
		return nil, fmt.Errorf("openapi: %w", err)
	}
	defer root.Close() //nolint:errcheck // it is read only
	total := 0
	read := func(name string) ([]byte, error) {
		raw, err := readFile(root, filepath.FromSlash(name))
		if total += len(raw); err == nil && total > maxFilesBytes {
			err = fmt.Errorf("the files of the document have more than %d bytes", maxFilesBytes)
		}
		if err != nil {
			return nil, err
		}
		return checked(raw)
	}
	doc, err := readFile(root, filepath.Base(name))
	if err != nil {
		return nil, fmt.Errorf("openapi: %w", err)
	}
	d := newDocument()
	d.read = read
	api, err := load(d, doc, &url.URL{}, o)
	if err != nil {
		return nil, err
	}
	api.files = []string{name}
	for _, other := range slices.Sorted(maps.Keys(d.files)) {
		if other != "" {
			api.files = append(api.files, filepath.Join(filepath.Dir(name), filepath.FromSlash(other)))
		}
	}
	return api, nil
}

func readFile(root *os.Root, name string) ([]byte, error) {
	f, err := root.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close() //nolint:errcheck // as above
	raw, err := io.ReadAll(io.LimitReader(f, maxDocument+1))
	if err == nil && len(raw) > maxDocument {
		err = fmt.Errorf("%s has more than %d bytes", name, maxDocument)
	}
	return raw, err
}

// Fetch reads a document from an address, which must be https, or http to loopback. Servers that
// the document names must be of the same origin; for another one, set Options.BaseURL. Neither
// Options.Header nor Options.Client is used for the document.
func Fetch(ctx context.Context, address string, o *Options) (*API, error) {
	origin, err := url.Parse(address)
	if err != nil {
		return nil, errors.New("openapi: the address of the document is no URL")
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, address, http.NoBody)
	if err != nil {
		return nil, fmt.Errorf("openapi: %w", err)
	}
	r.Header.Set("Accept", "application/json, application/yaml;q=0.9, */*;q=0.1")
	resp, err := fetch.New(&fetch.Options{MaxBytes: maxDocument, Timeout: fetchTimeout}).Do(r, nil)
	if err != nil {
		return nil, fmt.Errorf("openapi: %w", err)
	}
	defer resp.Body.Close()
	doc, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("the answer is %s", resp.Status)
	}
	if err != nil {
		return nil, fmt.Errorf("openapi: fetch the document: %w", err)
	}
	return load(newDocument(), doc, origin, o)
}

// CloseIdleConnections closes the connections to the API that no call uses.
func (a *API) CloseIdleConnections() { a.sender.client.CloseIdleConnections() }

// Info returns the title and the version that the document has in info, without control characters.
// Both may be "".
func (a *API) Info() (title, version string) { return a.title, a.version }

// Digest returns a hash of the document and of the files that it refers to: equal ones make the
// same tools of the same options.
func (a *API) Digest() string { return a.digest }

// Files returns the files that [Open] has read, the document first; none after [New] and [Fetch].
func (a *API) Files() []string { return a.files }

// Tools returns the tools, in the order of paths.
func (a *API) Tools() []*Tool { return a.tools }

// Problems returns what did not become a tool, or not wholly, and why.
func (a *API) Problems() []Problem { return a.problems }

// AddTo adds the tools to a server. Tools of the same names are replaced.
func (a *API) AddTo(s *mcp.Server) {
	for _, t := range a.tools {
		s.AddTool(t.Tool, t.plan.call)
	}
}

// checked returns a text as valid JSON within the bounds.
func checked(raw []byte) ([]byte, error) {
	if len(raw) > maxDocument {
		return nil, fmt.Errorf("the document has %d bytes; %d are allowed", len(raw), maxDocument)
	}
	out, err := toJSON(raw)
	if err != nil {
		return nil, err
	}
	if at, fault := scan.Text(out, maxNesting); fault != scan.OK {
		return nil, fmt.Errorf("%s at byte %d", fault, at)
	}
	return out, nil
}

// toJSON returns a document as JSON: as it is, or translated from YAML.
func toJSON(raw []byte) ([]byte, error) {
	raw = bytes.TrimPrefix(raw, []byte("\xef\xbb\xbf"))
	if i := scan.Space(raw, 0); i < len(raw) && raw[i] == '{' {
		at, fault := scan.Text(raw, maxNesting)
		if fault == scan.OK {
			return raw, nil
		}
		if fault == scan.TooDeep || len(raw) > yamljson.MaxBytes {
			return nil, fmt.Errorf("%s at byte %d", fault, at)
		}
		out, err := yamljson.JSON(raw) // a flow mapping of YAML begins with a brace, too
		if err != nil {
			return nil, fmt.Errorf("it is no JSON, %s at byte %d, and no YAML: %w", fault, at, err)
		}
		return out, nil
	}
	return yamljson.JSON(raw)
}

// A builder makes an API of a document.
type builder struct {
	d       *document
	o       Options
	shaper  *shaper
	answers *shaper      // of schemas of answers; nil: none yet
	chosen  []*operation // that become tools
	swagger bool         // Swagger 2.0

	origin      *url.URL // from where the document was learned; empty: it was given
	base        *url.URL // where the API is
	declared    string   // the document's own first server
	servers     map[string]bool
	credentials map[string]bool // parameters of security schemes: "header x-api-key"
	api         *API
}

func (b *builder) root() node { return b.d.files[""].root }

// top returns a member of the document, without searching it all each time.
func (b *builder) top(name string) node { return b.d.files[""].find("/" + name) }

func (b *builder) warn(o *operation, format string, args ...any) {
	p := Problem{Message: fmt.Sprintf(format, args...)}
	if o != nil {
		p.Operation = clean(o.key())
	}
	b.api.problems = append(b.api.problems, p)
}

// load makes an API of a document that was learned from origin, which is empty when it was given.
func load(d *document, doc []byte, origin *url.URL, o *Options) (*API, error) {
	raw, err := checked(doc)
	if err != nil {
		return nil, fmt.Errorf("openapi: the document cannot be read: %w", err)
	}
	d.add("", raw)
	b := &builder{
		d: d, origin: origin, servers: map[string]bool{}, credentials: map[string]bool{},
		api: &API{},
	}
	b.o = *cmp.Or(o, &Options{})
	b.o.setDefaults()
	if err := b.version(); err != nil {
		return nil, fmt.Errorf("openapi: %w", err)
	}
	if err := b.readServers(); err != nil {
		return nil, fmt.Errorf("openapi: %w", err)
	}
	b.readCredentials()
	if err := b.build(); err != nil {
		return nil, fmt.Errorf("openapi: %w", err)
	}
	b.api.digest = d.digest()
	return b.api, nil
}

// version reads which specification the document is written to.
func (b *builder) version() error {
	b.shaper = newShaper(b.d, b.o.Slim)
	root := b.root()
	b.api.title, b.api.version = clean(root.get("info").get("title").text()),
		clean(root.get("info").get("version").text())
	v := func(name string) string { return strings.Trim(string(root.get(name).raw), `"`) }
	switch {
	case strings.HasPrefix(v("openapi"), "3."):
	case strings.HasPrefix(v("swagger"), "2"):
		b.swagger = true
		b.warn(nil,
			"the document is written to Swagger 2.0, which OpenAPI 3 has replaced; it is read as far as "+
				"the two agree")
	case root.get("swagger").there(), root.get("openapi").there():
		return fmt.Errorf("the document is written to version %s; 3.0, 3.1 and Swagger 2.0 are known",
			clip(v("openapi")+v("swagger")))
	default:
		return errors.New(`this is no OpenAPI document: it has no member "openapi"`)
	}
	return nil
}

// build makes the tools.
func (b *builder) build() error {
	all, err := b.operations()
	if err != nil {
		return err
	}
	nameTools(all, b.o.MaxName)
	if b.api.sender, err = b.newSender(); err != nil {
		return err
	}
	b.checkSelectors(all)
	var chosen []*operation
	for _, o := range all {
		switch why, ok := b.choose(o); {
		case ok:
			chosen = append(chosen, o)
		case why != "":
			b.skip(o, why)
		}
	}
	if len(chosen) > b.o.MaxTools {
		return fmt.Errorf(
			"%d operations become tools, %d are allowed: choose some with Allow and Deny, those that read "+
				"with ReadOnly, or raise MaxTools",
			len(chosen), b.o.MaxTools)
	}
	b.chosen = chosen
	b.warnIgnored(nil, b.root())
	for _, o := range chosen {
		b.warnIgnored(o, o.node)
		t, err := b.tool(o)
		switch {
		case errors.Is(err, errForeign), errors.Is(err, errWork):
			return fmt.Errorf("%s: %w", clean(o.key()), err)
		case err != nil:
			b.skip(o, err.Error())
		default:
			b.api.tools = append(b.api.tools, t)
		}
	}
	return b.finish()
}

func (b *builder) skip(o *operation, why string) {
	b.api.problems = append(b.api.problems,
		Problem{Operation: clean(o.key()), Message: why, Skipped: true})
}

// finish checks the tools together.
func (b *builder) finish() error {
	names := map[string]string{}
	size := 0
	for _, t := range b.api.tools {
		if other, ok := names[t.Name]; ok {
			return fmt.Errorf("%s and %s have the name %s: Options.Edit must give them different ones",
				other, t.Operation, t.Name)
		}
		names[t.Name] = t.Operation
		size += t.size()
	}
	if n := len(b.api.tools); n > warnTools {
		b.warn(nil,
			"there are %d tools, with a list of about %d tokens: most models choose better among fewer; "+
				"choose some with Allow", n, size/bytesPerToken)
	}
	return nil
}

// Slim says how much of the schemas and descriptions of a document is shown to models, who
// pay for each word.
type Slim uint8

const (
	// SlimOn leaves out titles, examples and what follows the first words of a description.
	SlimOn Slim = iota
	// SlimOff keeps all that JSON Schema defines.
	SlimOff
	// SlimHard also leaves out what limits values, such as patterns and lengths. The API checks
	// them.
	SlimHard
)

// Options adjust how a document becomes tools. The zero value, and nil, mean the defaults.
// They are copied; later changes have no effect.
type Options struct {
	// BaseURL is where the API is: paths are added to it. It may be http and a private address, as it
	// is the program's own word. Default: the first of the document's servers, which must be https.
	// Only public addresses of it are dialled.
	BaseURL string
	// Servers are further origins, such as "https://upload.example.com", that operations of the
	// document may name for themselves. Header is not sent to them. Default: none, and
	// such operations are left out.
	Servers []string
	// Variables are values for the variables of the document's servers. Default: theirs.
	Variables map[string]string
	// AllowPrivate lets a document that chooses the origin choose a loopback or private address.
	AllowPrivate bool

	// Header is sent with each request to the origin of the API: credentials, for example. It is not
	// sent for operations with a security that is empty, nor after a redirect to another origin. It
	// needs BaseURL, so that no document chooses who gets it, unless that was fetched from the same
	// origin.
	Header http.Header
	// Authorizer adds credentials to the same requests as Header, which needs BaseURL as well, and is
	// asked for better ones when the API answers with 401 or 403. Default: none.
	Authorizer mcphttp.Authorizer
	// Client sends the requests; its CheckRedirect is not used, and its Transport decides where names
	// lead to. Default: a client without cookies.
	Client *http.Client
	// Timeout bounds a request, with its response. Default 30 s.
	Timeout time.Duration
	// MaxText bounds the text of a result, in bytes: lists are cut between their items. Default
	// 25,000.
	MaxText int

	// Allow selects operations: "tag:repos", "GET /repos/**", "DELETE **", and names of tools such as
	// "issues_*". * matches within a segment of a path. Default: all that are not deprecated. A
	// deprecated operation becomes a tool when it is named without *.
	Allow []string
	// Deny excludes operations, and wins over Allow.
	Deny []string
	// ReadOnly selects operations that read: GET and QUERY.
	ReadOnly bool
	// MaxTools is how many tools there may be: models choose badly among too many. Default 200.
	MaxTools int
	// MaxName bounds the names of tools. Default 48, as hosts put names of servers before them.
	MaxName int
	// OptionalHeaders makes arguments of header parameters that are not required.
	OptionalHeaders bool
	// Slim says how much of schemas is shown.
	Slim Slim
	// InlineRefs copies schemas into the places that refer to them, for hosts that do not follow $ref.
	// A schema that would become too large keeps its references.
	InlineRefs bool
	// OutputSchemas describes the results of operations with a successful answer that is one object in
	// JSON. An answer that does not fit is an error of the tool then. Off by default: such schemas are
	// large, and many documents are wrong about them.
	OutputSchemas bool
	// MediaTypes chooses the media type of a body, by operation: "PATCH /pets/{id}":
	// "application/json-patch+json". Default: JSON before forms before multipart before the rest.
	MediaTypes map[string]string
	// IndexArrays writes arrays in deepObject parameters as a[0], a[1]. Default: a[], a[].
	IndexArrays bool
	// Edit may change the name, title, description, annotations and _meta of a tool. operation is
	// its method and path, such as "GET /pets/{id}".
	Edit func(operation string, t *mcp.Tool)
}

func (o *Options) setDefaults() {
	o.Timeout = cmp.Or(max(o.Timeout, 0), 30*time.Second)
	o.MaxText = cmp.Or(max(o.MaxText, 0), 25_000)
	o.MaxTools = cmp.Or(max(o.MaxTools, 0), 200)
	o.MaxName = cmp.Or(max(o.MaxName, 0), 48)
	o.MaxName = min(max(o.MaxName, 20), 128)
}
