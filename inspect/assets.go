package inspect

import (
	"bytes"
	"cmp"
	"embed"
	"net/http"

	"github.com/farcall-dev/farcall/internal/onhttp"
)

//go:embed assets
var assets embed.FS

// policy lets the page load and reach what is on its own origin and nothing else; nothing on it is
// inline. Images and sounds of results are data.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; " +
	"img-src 'self' data: blob:; media-src data: blob:; connect-src 'self'; frame-src 'self'; " +
	"base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

// framePolicy is that of the document that shows a page of a server (ui://): scripts run there, in
// an opaque origin, without storage, network, forms, popups or navigation.
const framePolicy = "sandbox allow-scripts; default-src 'none'; script-src 'unsafe-inline'; " +
	"style-src 'unsafe-inline'; img-src data: blob:; media-src data: blob:; font-src data:; " +
	"base-uri 'none'; form-action 'none'; frame-ancestors 'self'"

const (
	pageFile  = "index.html"
	frameFile = "frame.html"
)

// secure sets the headers of every answer.
func secure(h http.Header) {
	h.Set("Content-Security-Policy", policy)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	h.Set("Cache-Control", "no-cache")
}

// readFiles returns the parts of the page. operate says that the page is of a gateway, too.
func readFiles(operate bool) (map[string]onhttp.Asset, error) {
	files, err := onhttp.ReadAssets(assets, "assets")
	if err == nil && operate {
		files[pageFile] = onhttp.NewAsset(bytes.Replace(
			files[pageFile].Body, []byte("<body "), []byte("<body data-operate "), 1))
	}
	return files, err
}

func (i *Inspector) serveFile(w http.ResponseWriter, r *http.Request, name string) {
	name = cmp.Or(name, pageFile)
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
	f.Serve(w, r, name)
}
