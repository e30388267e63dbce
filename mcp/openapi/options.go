package openapi

import (
	"net/http"
	"time"

	"github.com/farcall-dev/farcall/mcp"
	"github.com/farcall-dev/farcall/mcp/mcphttp"
)

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
	// OutputSchemas describes the results of operations with a successful answer that is one object in JSON. An answer that
	// does not fit is an error of the tool then. Off by default: such schemas are large, and many
	// documents are wrong about them.
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
	if o.Timeout <= 0 {
		o.Timeout = 30 * time.Second
	}
	if o.MaxText <= 0 {
		o.MaxText = 25_000
	}
	if o.MaxTools <= 0 {
		o.MaxTools = 200
	}
	if o.MaxName <= 0 {
		o.MaxName = 48
	}
	o.MaxName = min(max(o.MaxName, 20), 128)
}
