package mcphttp

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"net/url"
	"time"

	"github.com/farcall-dev/farcall/jsonrpc"
)

const (
	// forwardTimeout bounds how long another replica may take for an answer that is forwarded to it.
	forwardTimeout = 10 * time.Second
	// headerForwarded marks what a replica has forwarded: it is not forwarded again.
	headerForwarded = "Farcall-Forwarded"
)

// An elsewhere is an answer of the client to a question that another replica has asked.
type elsewhere struct {
	address string // "": the other one has none
	frame   []byte // borrowed
}

// pass gives such answers to the replicas that have asked. The error says why one did not get
// there.
func (x *exchange) pass() (status int, e *jsonrpc.Error) {
	for _, one := range x.elsewhere {
		if status, e = x.passOne(one); e != nil {
			x.h.debug("an answer did not reach the replica that has asked", "error", e.Error(), "cause", e.Cause)
			return status, e
		}
	}
	return http.StatusAccepted, nil
}

func (x *exchange) passOne(one elsewhere) (status int, e *jsonrpc.Error) {
	switch {
	case x.req.Header.Get(headerForwarded) != "":
		return http.StatusMisdirectedRequest, &jsonrpc.Error{
			Code: jsonrpc.InvalidRequest, Message: "Misdirected: the replica that has asked this is gone; call again",
		}
	case one.address == "":
		return http.StatusMisdirectedRequest, &jsonrpc.Error{
			Code: jsonrpc.InvalidRequest,
			Message: "Misdirected: another replica has asked this, and it advertises no address; " +
				"configure one for each replica, or route all requests of a session to one replica",
		}
	}
	if err := x.forward(one); err != nil {
		return http.StatusBadGateway, &jsonrpc.Error{
			Code: jsonrpc.InvalidRequest, Message: "the replica that has asked this does not take the answer; call again", Cause: err,
		}
	}
	return http.StatusAccepted, nil
}

// ownHeaders are those that belong to one connection (RFC 9110, section 7.6.1), and those that the
// sending client writes itself.
func ownHeaders() []string {
	return []string{
		"Connection", "Keep-Alive", "Proxy-Connection", "Te", "Trailer", "Transfer-Encoding", "Upgrade",
		"Content-Length", "Content-Encoding", "Accept-Encoding", "Expect",
	}
}

// forward sends an answer to another replica as its client has sent it here: with all headers,
// because the other one authenticates the client again, and with the name of the host. The address
// comes from a sealed id: a replica has written it.
func (x *exchange) forward(one elsewhere) error {
	from, err := url.ParseRequestURI(x.req.RequestURI)
	if err != nil {
		return err
	}
	to := one.address + (&url.URL{Path: from.Path, RawPath: from.RawPath, RawQuery: from.RawQuery}).RequestURI()
	// Some clients cancel this request as soon as the other replica has answered the call.
	ctx := context.WithoutCancel(x.req.Context())
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, to, bytes.NewReader(bytes.Clone(one.frame))) // it may be read on when the answer is there
	if err != nil {
		return err
	}
	r.Host, r.Header = x.req.Host, x.req.Header.Clone()
	for _, name := range ownHeaders() {
		r.Header.Del(name)
	}
	r.Header.Set(headerForwarded, "1")
	resp, err := x.h.sealed.forwards.Do(r)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode/100 != 2 {
		return fmt.Errorf("mcphttp: %s answers %s", one.address, resp.Status)
	}
	return nil
}
