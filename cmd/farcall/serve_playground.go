package main

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"path/filepath"
	"slices"
	"strings"

	"github.com/farcall-dev/farcall"
	"github.com/farcall-dev/farcall/cmd/farcall/internal/playground"
	"github.com/farcall-dev/farcall/gateway"
	"github.com/farcall-dev/farcall/guard"
	"github.com/farcall-dev/farcall/inspect"
	"github.com/farcall-dev/farcall/internal/health"
	"github.com/farcall-dev/farcall/internal/jsonv2"
	"github.com/farcall-dev/farcall/internal/keep"
	"github.com/farcall-dev/farcall/mcp"
	"github.com/farcall-dev/farcall/mcp/spec"
	"github.com/farcall-dev/farcall/store"
)

// A playgroundService is what the server of the playground is made of.
type playgroundService struct {
	service *playground.Service
	guard   *guard.Guard // nil: everybody may do everything
	tasks   *store.Local // nil: in memory
	page    *inspect.Inspector
}

// Close ends what runs in the background.
func (p *playgroundService) Close() (err error) {
	if p.page != nil {
		_ = p.page.Close() // it returns nil
	}
	p.service.Close()
	if p.tasks != nil {
		err = p.tasks.Close()
	}
	if p.guard != nil {
		err = errors.Join(err, p.guard.Close())
	}
	return err
}

// playground makes the server of the playground, with the guard of a configuration. Nothing is
// served yet.
func (f *serveFlags) playground(
	ctx context.Context, c *gateway.Config, log *slog.Logger, stderr io.Writer,
) (*playgroundService, error) {
	if err := f.checkAddresses(); err != nil {
		return nil, err
	}
	g, err := f.newGuard(c, log, stderr)
	if err != nil {
		return nil, err
	}
	tasks, err := f.openTasks(log)
	if err != nil {
		if g != nil {
			err = errors.Join(err, g.Close())
		}
		return nil, err
	}
	mux := farcall.NewMux()
	mux.Info.Title = "farcall playground"
	mux.Info.Version = versionName()
	mux.Info.Description = "Methods to try JSON-RPC 2.0 with: arithmetic, text, streams, a clock " +
		"that pushes, and failures of every kind."
	f.kept = new(keep.Keeper)
	f.kept.SetSlow(0)
	options := f.rpcOptions(log)
	p := &playgroundService{service: playground.Register(mux, log), guard: g, tasks: tasks}
	o := f.serveOptions(c, log, stderr)
	server := p.service.MCP(mux, options, func(o *mcp.ServerOptions) {
		if tasks != nil {
			o.Tasks = tasks
		}
		if g != nil {
			o.Owner = func(ctx context.Context) string { return guard.From(ctx).Owner() }
			o.Visible = func(ctx context.Context, kind, name string) bool {
				return mayUse(ctx, g, kind, name)
			}
		}
	})
	o.MCP = server
	if p.page, err = newPlaygroundPage(ctx, mux, server, o.RPC, g); err != nil {
		return nil, errors.Join(err, p.Close())
	}
	calls := keptCalls(f.kept, g == nil)
	if g != nil {
		o.Guard, o.Page = g, &playgroundPaths{p.page, map[string]http.Handler{callsPath: g.HTTP(calls)}}
	} else { // the page is for everybody
		o.Page = &playgroundPaths{
			p.page, map[string]http.Handler{callsPath: calls, metricsPath: f.measured()},
		}
		f.methods = mux.Methods()
	}
	f.draining = make(chan struct{})
	health.New(healthOf(mux), f.draining).Register(mux) // after MCP, which makes a tool of each method
	if err := f.newServer(mux, o, c); err != nil {
		return nil, errors.Join(err, p.Close())
	}
	return p, nil
}

// What the page of the playground keeps of the traffic of its user.
const (
	playgroundFrames = 50_000
	playgroundBytes  = 16 << 20
)

// newPlaygroundPage makes the page of the playground. Each that is open calls the playground as its
// user, and sees no traffic but its own. g may be nil.
func newPlaygroundPage(
	ctx context.Context, mux *farcall.Mux, server *mcp.Server, rpc *farcall.Options, g *guard.Guard,
) (*inspect.Inspector, error) {
	each := func(r *http.Request) []inspect.Server {
		dial := func(
			serve func(farcall.Transport, *farcall.Options),
		) func(context.Context) (farcall.Transport, error) {
			return func(context.Context) (farcall.Transport, error) {
				near, far := farcall.Pipe()
				o := *rpc
				o.Transport = "ws" // as the page has come
				if g != nil {
					g.Connection(&o, nil, r, far.Close)
				}
				serve(far, &o)
				return near, nil
			}
		}
		return []inspect.Server{
			{
				Name: "JSON-RPC", Path: "/rpc", Protocol: "jsonrpc",
				Dial: dial(func(t farcall.Transport, o *farcall.Options) { farcall.NewPeer(t, mux, o) }),
			},
			{
				Name: "MCP", Path: mcpPath, Protocol: "mcp",
				Dial: dial(func(t farcall.Transport, o *farcall.Options) {
					o.V1 = false                                         // no revision has it
					go func() { _ = server.ServeTransport(ctx, t, o) }() // it ends with the page
				}),
			},
		}
	}
	return inspect.New(ctx, &inspect.Options{
		Open: true, Each: each, Connect: true, Hosts: []string{"*"}, // the server checks the host
		May:       func(*http.Request, string) bool { return true }, // with its own traffic
		Conform:   conformPage,
		MaxFrames: playgroundFrames, MaxBytes: playgroundBytes, Version: versionName(),
		Logger: rpc.Logger,
	})
}

// healthOf returns the status of a service of the mux: the server as a whole, which is ready while
// it serves, or what stands before the slash of methods.
func healthOf(mux *farcall.Mux) func(service string) health.Status {
	return func(service string) health.Status {
		if service == "" || slices.ContainsFunc(mux.Methods(), func(m farcall.Method) bool {
			return strings.HasPrefix(m.Name, service+"/")
		}) {
			return health.Serving
		}
		return health.Unknown
	}
}

// playgroundPaths are the page of the playground and what else is served beside it.
type playgroundPaths struct {
	page interface {
		http.Handler
		Has(path string) bool
	}
	more map[string]http.Handler // by path
}

const (
	metricsPath = "/metrics"
	callsPath   = "/api/v1/calls"
)

// Has reports whether there is something at a path.
func (p *playgroundPaths) Has(path string) bool { return p.more[path] != nil || p.page.Has(path) }

func (p *playgroundPaths) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if h := p.more[r.URL.Path]; h != nil {
		h.ServeHTTP(w, r)
		return
	}
	p.page.ServeHTTP(w, r)
}

// keptCalls serves the calls that were kept: all of them, or those of the principal who asks.
func keptCalls(kept *keep.Keeper, all bool) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet {
			w.Header().Set("Allow", http.MethodGet)
			http.Error(w, "Use GET.", http.StatusMethodNotAllowed)
			return
		}
		calls, err := jsonv2.Append(nil, kept.Newest(all, guard.From(r.Context()).Owner()))
		if err != nil {
			http.Error(w, "The calls cannot be written as JSON: "+err.Error(),
				http.StatusInternalServerError)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Cache-Control", "no-store")
		_, _ = w.Write(calls) // an error: the client has gone
	})
}

// openTasks opens the directory of --tasks, as the gateway does for /mcp. Nil: there is none.
func (f *serveFlags) openTasks(log *slog.Logger) (*store.Local, error) {
	if f.tasks == "" {
		return nil, nil //nolint:nilnil // tasks are in memory
	}
	tasks, err := store.Open(filepath.Join(f.tasks, "mcp"), &store.Options{Logger: orDiscard(log)})
	if errors.Is(err, store.ErrInUse) {
		return nil, &exitError{
			code: exitFailure,
			err:  errors.New("--tasks " + f.tasks + ": another process uses the directory"),
			hint: "Give each farcall a directory.",
		}
	}
	return tasks, err
}

// mayUse reports whether a caller may use something of the playground.
func mayUse(ctx context.Context, g *guard.Guard, kind, name string) bool {
	method := spec.MethodResourcesRead
	switch kind {
	case "tool":
		method = spec.MethodToolsCall
	case "prompt":
		method = spec.MethodPromptsGet
	}
	return g.Visible(ctx, &guard.Call{Method: method, Name: name, MCP: true})
}
