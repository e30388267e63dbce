package signin

import (
	"context"
	"crypto/rand"
	"errors"
	"html/template"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/farcall-dev/farcall/internal/jsonv2"
)

// pageTime is how long a browser waits for the authorization server, which the gateway asks
// meanwhile.
const pageTime = 30 * time.Second

// maxForm bounds what the start page posts, in bytes.
const maxForm = 4 << 10

// A page says what has happened, or asks.
type page struct {
	Title, Text, Upstream, Principal, Link string
}

//nolint:gochecknoglobals // it is a table
var pages = template.Must(template.New("page").Parse(`<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width"><title>{{.Title}}</title>
<style>body{font:16px/1.5 system-ui,sans-serif;max-width:36em;margin:4em auto;padding:0 1em}button{font:inherit;padding:.4em 1.2em}</style>
</head><body><h1>{{.Title}}</h1>
{{if .Link}}<p>The upstream <b>{{.Upstream}}</b> is about to be connected to the principal <b>{{.Principal}}</b> of this gateway. From then on
that principal uses <b>{{.Upstream}}</b> in your name.</p>
<p>Go on only if you are <b>{{.Principal}}</b>, and have just asked for this yourself. If you were sent this link, close the window.</p>
<form method="post" action="/signin"><input type="hidden" name="link" value="{{.Link}}"><button>Sign in to {{.Upstream}}</button></form>
{{else}}<p>{{.Text}}</p>
{{end}}</body></html>
`))

// Serves reports whether a path is the service's.
func Serves(path string) bool { return path == Path || strings.HasPrefix(path, Path+"/") }

// ServeHTTP serves the start page, the callback and the metadata document. browser is the owner
// with the credentials that the browser has shown, "" for none.
func (s *Service) ServeHTTP(w http.ResponseWriter, r *http.Request, browser string) {
	h := w.Header()
	h.Set("Cache-Control", "no-store")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("X-Frame-Options", "DENY")
	h.Set("Content-Security-Policy",
		"default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; frame-ancestors 'none'")
	h.Set("Referrer-Policy", "same-origin") // with no-referrer, the origin of the form would be null
	path, post := r.URL.Path, r.Method == http.MethodPost
	switch {
	case r.Method != http.MethodGet && (!post || path != Path):
		h.Set("Allow", http.MethodGet)
		s.failed(w, http.StatusMethodNotAllowed, "This page is for browsers.")
	case path == Path && post:
		s.serveBegin(w, r, browser)
	case path == Path:
		s.serveStart(w, r, browser)
	case path == ClientPath:
		s.serveClient(w)
	case strings.HasPrefix(path, CallbackPath):
		h.Set("Referrer-Policy", "no-referrer")
		s.serveCallback(w, r, browser)
	default:
		s.failed(w, http.StatusNotFound, "There is no such page.")
	}
}

func (s *Service) show(w http.ResponseWriter, status int, p page) {
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.WriteHeader(status)
	_ = pages.Execute(w, p) // the browser has gone
}

func (s *Service) failed(w http.ResponseWriter, status int, text string) {
	s.show(w, status, page{Title: "Not signed in", Text: text})
}

// serveStart serves the start page. It changes nothing: programs that look at links open it, too.
func (s *Service) serveStart(w http.ResponseWriter, r *http.Request, browser string) {
	link := r.URL.Query().Get("link")
	a, err := s.linked(r.Context(), link, browser)
	if err != nil {
		s.failed(w, statusOf(err), sentence(err))
		return
	}
	s.show(w, http.StatusOK,
		page{Title: "Sign in to " + a.Upstream, Upstream: a.Upstream, Principal: a.Name, Link: link})
}

// serveBegin sends the browser to the authorization server. From here on the sign-in is that
// browser's.
func (s *Service) serveBegin(w http.ResponseWriter, r *http.Request, browser string) {
	protection := http.NewCrossOriginProtection()
	if err := protection.AddTrustedOrigin(s.opts.URL); err != nil {
		s.failed(w, http.StatusInternalServerError, "The URL of the gateway is not an origin.")
		return
	}
	if protection.Check(r) != nil {
		s.failed(w, http.StatusForbidden, "Another page has begun this sign-in. Open the link yourself.")
		return
	}
	r.Body = http.MaxBytesReader(w, r.Body, maxForm)
	cookie := s.cookieOf(r)
	if len(cookie) != len(rand.Text()) {
		cookie = rand.Text()
	}
	ctx, cancel := context.WithTimeout(r.Context(), pageTime)
	defer cancel()
	address, err := s.begin(ctx, r.PostFormValue("link"), browser, cookie)
	if err != nil {
		s.refused(ctx, w, err)
		return
	}
	http.SetCookie(w, &http.Cookie{ //nolint:gosec // it is secure where the gateway is
		Name: s.cookieName(), Value: cookie, Path: "/", MaxAge: int(flowLife.Seconds()), HttpOnly: true,
		Secure: s.secure(), SameSite: http.SameSiteLaxMode,
	})
	w.Header().Set("Location", address) // mcpauth has checked that it is the authorization server's
	w.WriteHeader(http.StatusSeeOther)
}

// serveCallback takes the browser that comes back.
func (s *Service) serveCallback(w http.ResponseWriter, r *http.Request, browser string) {
	upstream := strings.TrimPrefix(r.URL.Path, CallbackPath)
	q, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil || len(q["state"]) != 1 {
		s.failed(w, http.StatusBadRequest,
			"This answer of the authorization server cannot be read. Call the tool again to begin "+
				"another sign-in.")
		return
	}
	// A browser that leaves does not end it: the code is used up.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), pageTime)
	defer cancel()
	a, err := s.comeBack(ctx, upstream, q.Get("state"), browser, s.cookieOf(r), r.URL)
	if err != nil {
		s.refused(ctx, w, err)
		return
	}
	s.show(w, http.StatusOK, page{
		Title: "Signed in to " + a.Upstream,
		Text:  "The principal " + a.Name + " can use " + a.Upstream + " now. You may close this window.",
	})
}

// refused says why a sign-in does not go on.
func (s *Service) refused(ctx context.Context, w http.ResponseWriter, err error) {
	if ctx.Err() != nil {
		s.failed(w, http.StatusGatewayTimeout,
			"The authorization server does not answer. Try again later.")
		return
	}
	s.failed(w, statusOf(err), sentence(err))
}

// statusOf is the status of the page for an error.
func statusOf(err error) int {
	if _, ok := errors.AsType[refusal](err); ok {
		return http.StatusForbidden
	}
	if errors.Is(err, ErrStore) || errors.Is(err, ErrFull) {
		return http.StatusServiceUnavailable
	}
	return http.StatusBadGateway
}

// serveClient serves the client ID metadata document
// (draft-ietf-oauth-client-id-metadata-document).
func (s *Service) serveClient(w http.ResponseWriter) {
	redirects := []string{}
	for _, name := range s.opts.Names() {
		redirects = append(redirects, s.callbackOf(name))
	}
	text, err := jsonv2.Append(nil, map[string]any{
		"client_id": s.opts.URL + ClientPath, "client_name": s.opts.Name, "client_uri": s.opts.URL,
		"redirect_uris":  redirects,
		"grant_types":    []string{"authorization_code", "refresh_token"},
		"response_types": []string{"code"}, "token_endpoint_auth_method": "none",
	})
	if err != nil {
		s.failed(w, http.StatusInternalServerError, "The document cannot be written.")
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(text)
}

func (s *Service) secure() bool { return strings.HasPrefix(s.opts.URL, "https:") }

// cookieName is that of the cookie by which a browser is known again. No other host can set one
// with the prefix.
func (s *Service) cookieName() string {
	if s.secure() {
		return "__Host-farcall-signin"
	}
	return "farcall-signin"
}

func (s *Service) cookieOf(r *http.Request) string {
	c, err := r.Cookie(s.cookieName())
	if err != nil {
		return ""
	}
	return c.Value
}

// sentence is an error for people.
func sentence(err error) string {
	text := strings.TrimPrefix(strings.TrimPrefix(err.Error(), "signin: "), "mcpauth: ")
	if text == "" {
		return text
	}
	return strings.ToUpper(text[:1]) + text[1:] + "."
}
