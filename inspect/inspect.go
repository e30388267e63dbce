// Package inspect answers one question: how does a person look at a server, and use it, in a
// browser?
//
// An Inspector is the page of farcall inspect as an http.Handler. It connects with servers of MCP
// and of JSON-RPC, calls what they offer, answers what they ask, and shows every frame:
//
//	i, err := inspect.New(ctx, &inspect.Options{Servers: []inspect.Server{{Target: "http://127.0.0.1:7331/mcp"}}})
//	defer i.Close()
//	fmt.Println("http://127.0.0.1:6274/#token=" + i.Token())
//	http.ListenAndServe("127.0.0.1:6274", i)
//
// # Who may use it
//
// A user of the page acts as this process: the page starts its servers, and calls them with its
// credentials. The page proves with a token that its user could read the output of this
// process. The token is in the fragment of the URL, which browsers send nowhere; the page
// shows it when it opens its WebSocket. Requests of other web pages, and for host names that are
// not in Options.Hosts (DNS rebinding), are refused before that.
package inspect

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/farcall-dev/farcall"
	"github.com/farcall-dev/farcall/inspect/internal/traffic"
	"github.com/farcall-dev/farcall/internal/onhttp"
	"github.com/farcall-dev/farcall/internal/origin"
	"github.com/farcall-dev/farcall/internal/wirelog"
	"github.com/farcall-dev/farcall/jsonrpc"
	"github.com/farcall-dev/farcall/mcp"
	"github.com/farcall-dev/farcall/mcp/era"
	"github.com/farcall-dev/farcall/mcp/mcphttp"
	"github.com/farcall-dev/farcall/wsrpc"
)

// A Server is one server that the page offers, reached by exactly one of Target, Command,
// InProcess and Dial. With Capture it is a file with the traffic of one.
type Server struct {
	// Name is what the page calls it. Default: the target.
	Name string

	// Target is an address: http://, https://, ws://, wss://, tcp://, tls://, unix: or host:port.
	// Without a path it is /mcp for MCP, and for JSON-RPC /rpc (WebSocket: /rpc/ws) or /.
	Target string
	// Command is a program and its arguments, which run without a shell and speak over standard
	// input and output. Env is its environment; nil: that of this process. Dir is where it runs.
	Command []string
	Env     []string
	Dir     string
	// InProcess is a server of this process.
	InProcess *mcp.Server
	// Dial connects over a transport of the caller's choice.
	Dial func(ctx context.Context) (farcall.Transport, error)
	// Path is where the page's own address has the server, too: lines that are copied in the page say
	// so. It is for servers of InProcess and Dial.
	Path string
	// Capture is the path of a capture file (package capture), which is read when it is connected.
	Capture string

	// Header is sent with each request of http, https, ws and wss. The page does not see it.
	Header http.Header
	// HTTP sends the requests of http, https, ws and wss. Default: with the environment's proxy.
	HTTP *http.Client
	// Authorize gives requests of MCP over HTTP their credentials. Default none.
	Authorize mcphttp.Authorizer

	// Protocol is "mcp", "jsonrpc", or "auto", the default: MCP, and JSON-RPC if that fails.
	Protocol string
	// Era is what may be spoken of MCP: "auto", "modern", "legacy" or a revision. Default "auto".
	Era string
}

// Options adjust an Inspector. The zero value, and nil, mean the defaults.
type Options struct {
	// Servers are those that the page offers. They can be connected in the page.
	Servers []Server
	// Connect connects the first of Servers at once, and not when the page wants it.
	Connect bool
	// AnyServer lets the page connect to other targets, and start programs. Default: it may not.
	AnyServer bool

	// Each gives every page its own servers and traffic, in place of Servers. It is called with the
	// request that opens the connection of the page, and what it returns is disconnected when that
	// ends. Default none: all pages share Servers and what is seen of them.
	Each func(r *http.Request) []Server
	// Operate says that the page of a gateway's operators is wanted, too: the API for operators is at
	// api/v1, relative to the page. Default: there is none.
	Operate bool

	// Open says that the page needs no token: something in front of the handler, such as a
	// guard.Guard, decides who may use it.
	Open bool
	// May reports whether the page that opens with a request may do an action that needs a
	// separate permission. Default: every page that has shown the token may; with Open none may.
	May func(r *http.Request, action string) bool
	// Hosts are the DNS names of this server, which a request may have in its Host header. IP
	// addresses and localhost are always allowed. Default none.
	Hosts []string

	// Conform checks a server by the specification of its protocol, mcp or jsonrpc, over separate
	// connections, and returns a report that marshals to JSON. It calls each with the name of every
	// case that has run. The server is reached by Dial, or, over HTTP and WebSocket, at Target with
	// HTTP and Header. Default none: the page does not offer it.
	Conform func(ctx context.Context, protocol string, s *Server, each func(name string)) (any, error)

	// MaxFrames and MaxBytes bound the traffic that is kept; the oldest makes room. Default
	// 1,000,000 frames and 256 MiB.
	MaxFrames, MaxBytes int
	// Version is that of this program, which servers get. Default "0".
	Version string
	// Logger takes what does not concern the page. Default [slog.Default].
	Logger *slog.Logger
}

// An Inspector serves the page. Its methods may be called by any number of goroutines at once.
type Inspector struct {
	opts   Options
	token  string
	check  origin.Policy
	files  map[string]onhttp.Asset
	socket http.Handler
	mux    *farcall.Mux

	ctx   context.Context //nolint:containedctx // the life of the connections
	stop  context.CancelFunc
	tasks sync.WaitGroup

	began     time.Time
	store     *traffic.Store
	tickets   *tickets
	events    events
	questions questions
	breaks    breakpoints

	mu     sync.Mutex
	slots  []*slot
	last   int                          // the number of the last slot
	pages  map[*farcall.Peer]*Inspector // that has the servers, see Options.Each
	closed bool
}

// maxSlots bounds the servers of one inspector.
const maxSlots = 256

// New returns an Inspector, which must be closed. It connects with nothing, unless Options.Connect
// is set. The end of the context ends its connections. o may be nil.
func New(ctx context.Context, o *Options) (*Inspector, error) {
	var opts Options
	if o != nil {
		opts = *o
	}
	opts.Logger = cmp.Or(opts.Logger, slog.Default())
	opts.Version = cmp.Or(opts.Version, "0")
	files, err := readFiles(opts.Operate)
	if err != nil {
		return nil, err
	}
	i, err := newInspector(ctx, opts, &tickets{open: map[string]ticket{}})
	if err != nil {
		return nil, err
	}
	i.files = files
	i.check.Hosts = slices.Clone(opts.Hosts)
	i.socket = wsrpc.NewHandler(i.page, &wsrpc.Options{
		MaxMessage: 16 << 20, Hosts: opts.Hosts, Subprotocols: []string{subprotocol},
	})
	return i, nil
}

// newInspector makes an Inspector without the handlers of HTTP.
func newInspector(ctx context.Context, o Options, t *tickets) (*Inspector, error) {
	i := &Inspector{
		pages: map[*farcall.Peer]*Inspector{}, token: rand.Text(), began: time.Now(), tickets: t,
		opts: o,
	}
	i.questions.open = map[int]*question{}
	i.ctx, i.stop = context.WithCancel(ctx)
	i.store = traffic.NewStore(traffic.Limits{Rows: i.opts.MaxFrames, Bytes: i.opts.MaxBytes})
	i.mux = farcall.NewMux()
	i.routes()
	for n := range i.opts.Servers {
		if _, err := i.add(&i.opts.Servers[n]); err != nil {
			i.stop()
			return nil, fmt.Errorf("inspect: server %d: %w", n+1, err)
		}
	}
	if i.opts.Connect && len(i.slots) > 0 {
		i.slots[0].connect()
	}
	return i, nil
}

// Token returns what the fragment of the page's URL must have: #token=TOKEN.
func (i *Inspector) Token() string { return i.token }

// Close ends all connections and child processes and waits for them.
func (i *Inspector) Close() error {
	i.mu.Lock()
	i.closed = true
	pages := maps.Clone(i.pages)
	slots := slices.Clone(i.slots)
	i.mu.Unlock()
	i.stop()
	for p, of := range pages {
		_ = p.Close() // the page goes on without it
		if of != i {
			_ = of.Close() // it returns nil
		}
	}
	for _, s := range slots {
		s.disconnect()
	}
	i.tasks.Wait()
	return nil
}

// add registers a server.
func (i *Inspector) add(s *Server) (*slot, error) {
	if err := s.valid(); err != nil {
		return nil, err
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	switch {
	case i.closed:
		return nil, errClosed
	case len(i.slots) >= maxSlots:
		return nil, fmt.Errorf("there are %d servers already: remove one first", maxSlots)
	}
	i.last++
	x := &slot{i: i, id: i.last, server: *s, state: stateIdle}
	x.log = wirelog.NewFunc(
		func(link uint64, mark byte, text []byte) { i.store.Add(x.id, link, mark, text) },
	)
	i.slots = append(i.slots, x)
	return x, nil
}

var errClosed = errors.New("the inspector is closed")

// valid returns what is wrong with a server.
func (s *Server) valid() error {
	ways := 0
	for _, has := range []bool{
		s.Target != "", len(s.Command) > 0, s.InProcess != nil, s.Dial != nil, s.Capture != "",
	} {
		if has {
			ways++
		}
	}
	if ways != 1 {
		return fmt.Errorf("%d of Target, Command, InProcess, Dial and Capture are given: give one", ways)
	}
	if !slices.Contains([]string{"", protocolAuto, protocolMCP, protocolRPC}, s.Protocol) {
		return fmt.Errorf("there is no protocol %q: use auto, mcp or jsonrpc", s.Protocol)
	}
	if _, _, err := era.Select(s.Era); err != nil {
		return fmt.Errorf("there is no revision %q", s.Era)
	}
	_, err := s.target()
	return err
}

// subprotocol is what the page offers for its WebSocket, and tokenPrefix what stands before its
// token among its offers: a page cannot set other headers.
const (
	subprotocol = "farcall.inspect.1"
	tokenPrefix = "token."
)

// allows reports whether a request shows the token.
func (i *Inspector) allows(r *http.Request) bool {
	if i.opts.Open {
		return true
	}
	want := sha256.Sum256([]byte(i.token))
	for _, line := range r.Header.Values("Sec-WebSocket-Protocol") {
		for offer := range strings.SplitSeq(line, ",") {
			given, ok := strings.CutPrefix(strings.TrimSpace(offer), tokenPrefix)
			got := sha256.Sum256([]byte(given))
			if ok && subtle.ConstantTimeCompare(got[:], want[:]) == 1 {
				return true
			}
		}
	}
	return false
}

// Has reports whether ServeHTTP serves something at a path.
func (i *Inspector) Has(path string) bool {
	switch path = strings.TrimPrefix(path, "/"); path {
	case "", "api", "save", "open":
		return true
	}
	_, ok := i.files[path]
	return ok
}

// ServeHTTP serves the page, its parts, and its WebSocket. It may be mounted below a path with
// [http.StripPrefix]; the path of the page ends with a slash then.
func (i *Inspector) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	secure(w.Header())
	if err := i.check.CheckHost(r); err != nil {
		http.Error(w, err.Error(), http.StatusForbidden)
		return
	}
	switch path := strings.TrimPrefix(r.URL.Path, "/"); {
	case path == "api" || path == "save" || path == "open":
		// The parts of the page are the same for everybody, and a link may lead to them.
		switch err := i.check.CheckOrigin(r); {
		case err != nil:
			http.Error(w, err.Error(), http.StatusForbidden)
		case path != "api":
			i.serveTicket(w, r, path)
		case !i.allows(r):
			http.Error(w,
				"The token is missing or wrong. Open the URL that was printed when this started.",
				http.StatusUnauthorized)
		default:
			i.socket.ServeHTTP(w, r)
		}
	case r.URL.Path == "" && !strings.HasSuffix(r.URL.Path, "/"):
		asked, _, _ := strings.Cut(r.RequestURI, "?")
		if strings.HasSuffix(asked, "/") || asked == "" {
			i.serveFile(w, r, "")
			return
		}
		w.Header().Set("Location", asked[strings.LastIndexByte(asked, '/')+1:]+"/")
		w.WriteHeader(http.StatusTemporaryRedirect)
	default:
		i.serveFile(w, r, path)
	}
}

// The actions that need a permission, see Options.May.
const (
	// ActionReplay sends the request of a frame again.
	ActionReplay = "replay"
	// ActionBreak holds, changes, drops and answers frames.
	ActionBreak = "break"
)

// actions are those of the methods that need a permission.
var actions = map[string]string{
	"replay": ActionReplay,
	"break":  ActionBreak, "unbreak": ActionBreak,
}

// A page is the connection of one.
type page struct {
	may []string        // the actions
	ctx context.Context //nolint:containedctx // its life
	end context.CancelFunc
}

// needs returns why a page may not do an action; nil: it may.
func (p *page) needs(action string) error {
	if action == "" || slices.Contains(p.may, action) {
		return nil
	}
	return jsonrpc.Errorf(jsonrpc.InvalidRequest, "this page has no permission to %s", action)
}

type pageKey struct{}

// pageOf returns the page that calls; nil: none does.
func pageOf(ctx context.Context) *page {
	p, _ := ctx.Value(pageKey{}).(*page)
	return p
}

// page serves the connection of a page.
func (i *Inspector) page(t farcall.Transport, r *http.Request) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.closed || len(i.pages) >= maxPages {
		_ = t.Close() // the page says that the connection is closed
		return
	}
	of, err := i.servers(r)
	if err != nil {
		i.opts.Logger.Error("a page has no servers", "error", err)
		_ = t.Close() // as above
		return
	}
	var p *farcall.Peer
	p = of.serve(t, r, func() {
		i.mu.Lock()
		defer i.mu.Unlock()
		delete(i.pages, p)
		if of != i && !i.closed { // Close closes it otherwise
			i.tasks.Go(func() { _ = of.Close() }) // it returns nil
		}
	})
	i.pages[p] = of
}

// servers returns the Inspector that has the servers of a page.
func (i *Inspector) servers(r *http.Request) (*Inspector, error) {
	if i.opts.Each == nil {
		return i, nil
	}
	o := i.opts
	o.Servers = o.Each(r)
	return newInspector(i.ctx, o, i.tickets)
}

// serve serves the page of a connection, and calls end when that has ended.
func (i *Inspector) serve(t farcall.Transport, r *http.Request, end func()) *farcall.Peer {
	pg := &page{may: []string{}}
	pg.ctx, pg.end = context.WithCancel(i.ctx)
	for _, action := range []string{ActionReplay, ActionBreak} {
		if i.opts.May == nil && !i.opts.Open || i.opts.May != nil && i.opts.May(r, action) {
			pg.may = append(pg.may, action)
		}
	}
	serve := func(ctx context.Context, req *farcall.Request) (any, error) {
		if err := pg.needs(actions[req.Method]); err != nil {
			return nil, err
		}
		return i.mux.ServeRPC(context.WithValue(ctx, pageKey{}, pg), req)
	}
	return farcall.NewPeer(t, farcall.HandlerFunc(serve), &farcall.Options{
		NoInline: true, Logger: i.opts.Logger, Transport: "ws", MaxInFlight: 256,
		OnClose: func(error) {
			pg.end()
			i.breaks.remove(func(b *breakpoint) bool { return b.page == pg })
			end()
		},
	})
}

// maxPages bounds the pages that are open at once.
const maxPages = 64
