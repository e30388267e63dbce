package mcp

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/url"

	"github.com/farcall-dev/farcall"
	"github.com/farcall-dev/farcall/internal/jsonv2"
	"github.com/farcall-dev/farcall/mcp/spec"
)

const (
	// maxSaved bounds what Session returns and Resume takes, in bytes.
	maxSaved = 1 << 20
	// savedVersion is the version of these bytes.
	savedVersion = 1
)

var errNotResumable = errors.New("only a session over HTTP can be resumed, and not over HTTP+SSE: " +
	"others end with their connection")

// savedSession is the JSON that Session returns.
type savedSession struct {
	Version   int        `json:"version"`
	Address   string     `json:"address"`
	ID        string     `json:"id"`        // "": the server has no session for the client
	LastEvent string     `json:"lastEvent"` // that this client has handled
	Level     string     `json:"level"`     // of the log
	Server    ServerInfo `json:"server"`
}

// Session returns what [ClientOptions].Resume needs to go on with the session in a later client, in
// another process for example, without a handshake. It works in every revision: where there is no
// session, the later client needs only what the server has said of itself. Session sends nothing.
//
// From then on Close leaves the session on the server, which ends it when no client uses it for
// some time. To end it at once, resume it, and call Close without Session. Subscriptions to
// resources stay, too, where the server keeps them in the session, unless the context of Listen
// ends before Close.
//
// What happens after Session is not in the bytes. Calls that are in flight at Close are lost. The
// server sends events again that come after Session. When a new session has replaced the one in the
// bytes, call Session again.
//
// The bytes have the id of the session, which may be all that an attacker needs to use it: keep
// them as secret as a password. They have none of the client's credentials: neither headers nor the
// user, password and query of the address. They have at most 1 MiB.
//
// Session fails when the session cannot be resumed: over HTTP+SSE and other transports than HTTP;
// with [mcphttp.ErrSessionLost] while a new session replaces a lost one; with farcall.ErrClosed
// after Close; and when the server's description of itself is too long.
func (c *Client) Session() ([]byte, error) {
	c.mu.Lock()
	l, closed, level := c.cur, c.closed, c.level
	c.mu.Unlock()
	switch {
	case closed:
		return nil, fmt.Errorf("mcp: session: %w", farcall.ErrClosed)
	case l.http == nil || l.sse:
		return nil, fmt.Errorf("mcp: session: %w", errNotResumable)
	}
	s := savedSession{Version: savedVersion, Address: c.address, ID: l.id, Level: level, Server: *l.info}
	if _, err := s.marshal(); err != nil { // before Close leaves the session
		return nil, fmt.Errorf("mcp: session: %w", err)
	}
	if l.id != "" {
		var err error
		if s.LastEvent, err = l.http.Detach(l.id); err != nil {
			return nil, fmt.Errorf("mcp: session: %w", err)
		}
	}
	raw, err := s.marshal()
	if err != nil { // no room for the last event: the later client gets later events only
		s.LastEvent = ""
		raw, err = s.marshal()
	}
	return raw, err
}

// marshal returns the bytes of a session.
func (s *savedSession) marshal() ([]byte, error) {
	raw, err := jsonv2.Append(nil, s)
	if err == nil && len(raw) > maxSaved {
		err = fmt.Errorf("it needs %d bytes, %d of them for the server's instructions; at most %d can be saved",
			len(raw), len(s.Server.Instructions), maxSaved)
	}
	return raw, err
}

// parseSession reads what Session has returned.
func parseSession(raw []byte) (*savedSession, error) {
	if len(raw) > maxSaved {
		return nil, fmt.Errorf("it has %d bytes; a session has at most %d", len(raw), maxSaved)
	}
	var head struct {
		Version int `json:"version"`
	}
	s := new(savedSession)
	switch err := jsonv2.Unmarshal(raw, &head); {
	case err != nil:
		return nil, fmt.Errorf("it is not what Client.Session returns: %w", err)
	case head.Version != savedVersion:
		return nil, fmt.Errorf("it has version %d, and this release of farcall reads version %d; dial without it", head.Version, savedVersion)
	}
	switch err := jsonv2.UnmarshalStrict(raw, s); {
	case err != nil:
		return nil, fmt.Errorf("it is not what Client.Session returns: %w", err)
	case s.Server.Capabilities == nil:
		return nil, errors.New("it is not what Client.Session returns: it does not have the server's capabilities")
	case s.Level != "" && spec.LogSeverity(s.Level) < 0:
		return nil, fmt.Errorf("it is not what Client.Session returns: %.50q is not a log level", s.Level)
	}
	return s, nil
}

// addressOf returns the part of a URL that says which server it is. Users, passwords and queries
// may be credentials.
func addressOf(u *url.URL) string {
	return (&url.URL{Scheme: u.Scheme, Host: u.Host, Path: u.Path, RawPath: u.RawPath}).String()
}

// resume makes the first link from ClientOptions.Resume.
func (c *Client) resume(_ context.Context, w *line) (*link, error) {
	s, err := c.resumable(w)
	if err == nil && s.ID != "" {
		err = w.http.Attach(s.ID, s.LastEvent)
	}
	if err != nil {
		return nil, fmt.Errorf("ClientOptions.Resume: %w", err)
	}
	c.mu.Lock()
	c.level = cmp.Or(c.level, s.Level)
	c.mu.Unlock()
	l := c.newLink(w, common(c.revisions(), []string{s.Server.Revision}), &s.Server)
	l.id = s.ID
	return l, nil
}

// resumable returns the session in ClientOptions.Resume if the client can use it over a line.
func (c *Client) resumable(w *line) (*savedSession, error) {
	if w.http == nil {
		return nil, errNotResumable
	}
	s, err := parseSession(c.opts.Resume)
	switch {
	case err != nil:
		return nil, err
	case s.Address != c.address:
		return nil, fmt.Errorf("it is a session of %.200q, not of %q; dial that address, or dial without it", s.Address, c.address)
	case common(c.revisions(), []string{s.Server.Revision}) == nil:
		return nil, fmt.Errorf("it has the revision %.50q and this client may speak %s; see ClientOptions.Era", s.Server.Revision, c.allowed())
	}
	return s, nil
}
