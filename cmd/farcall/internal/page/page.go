// Package page is the page that farcall serves at "/": it lists the methods of
// the service behind /rpc, and calls them. Everything it needs is embedded.
package page

import (
	"bytes"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"io/fs"
	"mime"
	"net/http"
	"path"
	"time"
)

//go:embed assets
var assets embed.FS

// policy lets the page load and call what is on its own origin and nothing
// else. Nothing on it is inline.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; " +
	"base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

type file struct {
	body        []byte
	contentType string
	etag        string
}

// Page serves the page and its parts.
type Page struct {
	files map[string]file // by the path of the URL
}

// New reads the embedded files.
func New() (*Page, error) {
	p := &Page{files: make(map[string]file)}
	entries, err := fs.ReadDir(assets, "assets")
	if err != nil {
		return nil, err
	}
	for _, entry := range entries {
		body, err := assets.ReadFile("assets/" + entry.Name())
		if err != nil {
			return nil, err
		}
		url := "/page/" + entry.Name()
		if entry.Name() == "index.html" {
			url = "/"
		}
		sum := sha256.Sum256(body)
		p.files[url] = file{body, contentType(entry.Name()), `"` + hex.EncodeToString(sum[:8]) + `"`}
	}
	return p, nil
}

// contentType does not depend on the machine's own table, as the mime package
// alone does.
func contentType(name string) string {
	switch ext := path.Ext(name); ext {
	case ".html":
		return "text/html; charset=utf-8"
	case ".css":
		return "text/css; charset=utf-8"
	case ".js":
		return "text/javascript; charset=utf-8"
	case ".svg":
		return "image/svg+xml"
	default:
		return mime.TypeByExtension(ext)
	}
}

// Has reports whether the path is the page or one of its parts.
func (p *Page) Has(path string) bool {
	_, ok := p.files[path]
	return ok
}

// ServeHTTP serves the page and its parts, and 404 for anything else.
func (p *Page) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	f, ok := p.files[r.URL.Path]
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
	h.Set("Content-Type", f.contentType)
	h.Set("ETag", f.etag)
	h.Set("Cache-Control", "no-cache")
	h.Set("Content-Security-Policy", policy)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "no-referrer")
	http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(f.body))
}
