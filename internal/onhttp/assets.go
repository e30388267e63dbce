package onhttp

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"io/fs"
	"net/http"
	"path"
	"time"
)

// An Asset is a file of a page that is embedded in the program.
type Asset struct {
	Body []byte

	etag string
}

// ReadAssets reads the files of a directory, by their names.
func ReadAssets(from fs.FS, dir string) (map[string]Asset, error) {
	entries, err := fs.ReadDir(from, dir)
	if err != nil {
		return nil, err
	}
	all := map[string]Asset{}
	for _, entry := range entries {
		body, err := fs.ReadFile(from, dir+"/"+entry.Name())
		if err != nil {
			return nil, err
		}
		all[entry.Name()] = NewAsset(body)
	}
	return all, nil
}

// NewAsset returns an asset with a body.
func NewAsset(body []byte) Asset {
	sum := sha256.Sum256(body)
	return Asset{body, `"` + hex.EncodeToString(sum[:8]) + `"`}
}

// Serve answers GET and HEAD with an asset of this name. The media type does not depend on the
// machine's own table, as that of package mime does.
func (a Asset) Serve(w http.ResponseWriter, r *http.Request, name string) {
	kinds := map[string]string{
		".html": "text/html; charset=utf-8", ".css": "text/css; charset=utf-8",
		".js": "text/javascript; charset=utf-8", ".svg": "image/svg+xml",
	}
	h := w.Header()
	h.Set("Content-Type", kinds[path.Ext(name)])
	h.Set("ETag", a.etag)
	h.Set("Cache-Control", "no-cache")
	http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(a.Body))
}
