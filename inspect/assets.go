package inspect

import (
	"bytes"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"io/fs"
	"net/http"
	"path"
	"time"
)

//go:embed assets
var assets embed.FS

// policy lets the page load and reach what is on its own origin and nothing else; nothing on
// it is
// inline. Images and sounds of results are data.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' " +
	"data: blob:; media-src data: blob:; " +
	"connect-src 'self'; frame-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

// framePolicy is that of the document that shows a page of a server (ui://): scripts run
// there, in an
// opaque origin, without storage, network, forms, popups or navigation.
const framePolicy = "sandbox allow-scripts; default-src 'none'; script-src " +
	"'unsafe-inline'; style-src 'unsafe-inline'; " +
	"img-src data: blob:; media-src data: blob:; font-src data:; base-uri 'none'; " +
	"form-action 'none'; frame-ancestors 'self'"

const frameFile = "frame.html"

type file struct {
	body        []byte
	contentType string
	etag        string
}

// readAssets reads the embedded files, by their names; the page itself is "".
func readAssets() (map[string]file, error) {
	files := map[string]file{}
	entries, err := fs.ReadDir(assets, "assets")
	if err != nil {
		return nil, err
	}
	for _, entry := range entries {
		body, err := assets.ReadFile("assets/" + entry.Name())
		if err != nil {
			return nil, err
		}
		name := entry.Name()
		if name == "index.html" {
			name = ""
		}
		sum := sha256.Sum256(body)
		files[name] = file{body, contentType(entry.Name()), `"` + hex.EncodeToString(sum[:8]) + `"`}
	}
	return files, nil
}

// contentType does not depend on the machine's own table, as package mime does.
func contentType(name string) string {
	switch path.Ext(name) {
	case ".html":
		return "text/html; charset=utf-8"
	case ".css":
		return "text/css; charset=utf-8"
	case ".js":
		return "text/javascript; charset=utf-8"
	default:
		return "image/svg+xml"
	}
}

// secure sets the headers of every answer.
func secure(h http.Header) {
	h.Set("Content-Security-Policy", policy)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	h.Set("Cache-Control", "no-cache")
}

func (i *Inspector) serveFile(w http.ResponseWriter, r *http.Request, name string) {
	f, ok := i.files[name]
	if !ok {
		http.NotFound(w, r)
		return
	}
	h := w.Header()
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		h.Set("Allow", "GET, HEAD")
		http.Error(w, "The page is read with GET.", http.StatusMethodNotAllowed)
		return
	}
	if name == frameFile {
		h.Set("Content-Security-Policy", framePolicy)
	}
	h.Set("Content-Type", f.contentType)
	h.Set("ETag", f.etag)
	http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(f.body))
}
