package httprpc

import (
	"cmp"
	"net/http"
	"time"

	"github.com/farcall-dev/farcall"
	"github.com/farcall-dev/farcall/internal/sse"
)

const (
	defaultMaxMessage = 50 << 20
	defaultKeepAlive  = 15 * time.Second

	defaultBodyTimeout = 30 * time.Second
)

// Options adjust both ends. The zero value, and nil, mean the defaults. They
// are copied; later changes have no effect.
type Options struct {
	// MaxMessage bounds a request, and an answer that is no event stream, in
	// bytes. Default 50 MB.
	MaxMessage int

	// Gzip compresses. The serving end reads requests in gzip and compresses answers of 1 KB
	// and more that are no event streams, for clients that accept it. The calling end
	// accepts gzip, and compresses such requests once the server has said that it reads them. What a
	// body has when it is decompressed is bounded like any other. Default: no; see the
	// package's notes on compression for what it may reveal.
	Gzip bool

	// BodyTimeout is how long the body of a request may take at the serving end, and a
	// second more for each 100 KB of it; then it is answered with 408. Default 30 s;
	// negative: for ever.
	BodyTimeout time.Duration
	// Budget has the memory for bodies, answers and events of more than 64 KiB. A
	// request for which there is none is answered with 503. Default: that of RPC, or
	// of the process, see [farcall.Budget].
	Budget *farcall.Budget
	// RPC adjusts how the serving end handles messages. Default: its defaults.
	RPC *farcall.Options
	// Origins are the web pages of other hosts that may call the serving end:
	// "https://app.example.com", "localhost:3000", "*.example.com", or "*" for
	// all. Default none.
	Origins []string
	// Hosts are the DNS names of the server, which a request may have in its Host
	// header: "tools.example.com", "*.example.com", or "*" for all. IP addresses and
	// localhost are always allowed. Other names are answered with 403, since a web
	// page can have its own name point here (DNS rebinding), unless a guard.Guard
	// stands in front that asks every caller for credentials. Default none.
	Hosts []string
	// KeepAlive is how long an event stream may be silent before the serving end
	// sends a comment. Default 15 s; negative: never.
	KeepAlive time.Duration

	// Client sends the requests of the calling end; its CheckRedirect is not
	// used. Default: its own client, with the proxy of the environment.
	Client *http.Client
	// Header is sent with every request of the calling end.
	Header http.Header
	// MaxEvent bounds one event of an answer in bytes. Default 10 MB.
	MaxEvent int
	// StrictAnswers refuses answers with a media type that is not application/json or one
	// of its kin; answers of text/plain and of other types of JSON are read
	// otherwise. It goes with farcall.Options.StrictAnswers.
	StrictAnswers bool
}

func (o *Options) withDefaults() Options {
	c := *cmp.Or(o, &Options{})
	c.MaxMessage = cmp.Or(c.MaxMessage, defaultMaxMessage)
	c.MaxEvent = cmp.Or(c.MaxEvent, sse.DefaultMaxEvent)
	c.BodyTimeout = cmp.Or(c.BodyTimeout, defaultBodyTimeout)
	c.KeepAlive = cmp.Or(c.KeepAlive, defaultKeepAlive)
	var rpc farcall.Options
	if c.RPC != nil {
		rpc = *c.RPC
	}
	rpc.Transport = cmp.Or(rpc.Transport, "http")
	c.Budget = cmp.Or(c.Budget, rpc.Budget)
	c.RPC = &rpc
	return c
}
