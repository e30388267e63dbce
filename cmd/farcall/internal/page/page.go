// Package page is the page that farcall serves at "/": it lists the methods of
// the service behind /rpc, and calls them. Everything it needs is embedded.
package page

import (
	"embed"
	"net/http"
	"strings"

	"github.com/farcall-dev/farcall/internal/onhttp"
)

//go:embed assets
var assets embed.FS

// policy lets the page load and call what is on its own origin and nothing
// else. Nothing on it is inline.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; " +
	"base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

// Page serves the page and its parts.
type Page struct {
	files map[string]onhttp.Asset
}

// New reads the embedded files.
func New() (*Page, error) {
	files, err := onhttp.ReadAssets(assets, "assets")
	return &Page{files}, err
}

// name returns the name of the file at a path; "": none is there.
func name(path string) string {
	if path == "/" {
		return "index.html"
	}
	file, ok := strings.CutPrefix(path, "/page/")
	if !ok || file == "index.html" {
		return ""
	}
	return file
}

// Has reports whether the path is the page or one of its parts.
func (p *Page) Has(path string) bool {
	_, ok := p.files[name(path)]
	return ok
}

// ServeHTTP serves the page and its parts, and 404 for anything else.
func (p *Page) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	f, ok := p.files[name(r.URL.Path)]
	if !ok {
		http.NotFound(w, r)
		return
	}
	h := w.Header()
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		h.Set("Allow", "GET, HEAD")
		http.Error(w, "The page is read with GET. JSON-RPC is posted to /rpc.", http.StatusMethodNotAllowed)
		return
	}
	h.Set("Content-Security-Policy", policy)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "no-referrer")
	f.Serve(w, r, name(r.URL.Path))
}
