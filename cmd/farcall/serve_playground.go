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
	"github.com/farcall-dev/farcall/cmd/farcall/internal/page"
	"github.com/farcall-dev/farcall/cmd/farcall/internal/playground"
	"github.com/farcall-dev/farcall/gateway"
	"github.com/farcall-dev/farcall/guard"
	"github.com/farcall-dev/farcall/internal/health"
	"github.com/farcall-dev/farcall/mcp"
	"github.com/farcall-dev/farcall/mcp/spec"
	"github.com/farcall-dev/farcall/store"
)

// A playgroundService is what the server of the playground is made of.
type playgroundService struct {
	service *playground.Service
	guard   *guard.Guard // nil: everybody may do everything
	tasks   *store.Local // nil: in memory
}

// Close ends what runs in the background.
func (p *playgroundService) Close() (err error) {
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
func (f *serveFlags) playground(c *gateway.Config, log *slog.Logger, stderr io.Writer) (*playgroundService, error) {
	if err := f.checkAddresses(); err != nil {
		return nil, err
	}
	html, err := page.New()
	if err != nil {
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
	mux.Info.Description = "Methods to try JSON-RPC 2.0 with: arithmetic, text, streams, a clock that pushes, and failures of every kind."
	options := f.rpcOptions(log)
	p := &playgroundService{service: playground.Register(mux, log), guard: g, tasks: tasks}
	o := f.serveOptions(c, log, stderr)
	o.Page = html
	if g == nil { // the page is for everybody
		o.Page, f.methods = &measuredPage{html, f.measured()}, mux.Methods()
	}
	o.MCP = p.service.MCP(mux, options, func(o *mcp.ServerOptions) {
		if tasks != nil {
			o.Tasks = tasks
		}
		if g != nil {
			o.Owner = func(ctx context.Context) string { return guard.From(ctx).Owner() }
			o.Visible = func(ctx context.Context, kind, name string) bool { return mayUse(ctx, g, kind, name) }
		}
	})
	if g != nil {
		o.Guard = g
	}
	f.draining = make(chan struct{})
	health.New(healthOf(mux), f.draining).Register(mux) // after MCP, which makes a tool of each method
	if err := f.newServer(mux, o, c); err != nil {
		return nil, errors.Join(err, p.Close())
	}
	return p, nil
}

// healthOf returns the status of a service of the mux: the server as a whole, which is ready while it
// serves, or what stands before the slash of methods.
func healthOf(mux *farcall.Mux) func(service string) health.Status {
	return func(service string) health.Status {
		if service == "" || slices.ContainsFunc(mux.Methods(), func(m farcall.Method) bool { return strings.HasPrefix(m.Name, service+"/") }) {
			return health.Serving
		}
		return health.Unknown
	}
}

// measuredPage is the page of the playground with the metrics beside it.
type measuredPage struct {
	page interface {
		http.Handler
		Has(path string) bool
	}
	metrics http.Handler
}

const metricsPath = "/metrics"

// Has reports whether there is something at a path.
func (p *measuredPage) Has(path string) bool { return path == metricsPath || p.page.Has(path) }

func (p *measuredPage) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path == metricsPath {
		p.metrics.ServeHTTP(w, r)
		return
	}
	p.page.ServeHTTP(w, r)
}

// openTasks opens the directory of --tasks, as the gateway does for /mcp. Nil: there is none.
func (f *serveFlags) openTasks(log *slog.Logger) (*store.Local, error) {
	if f.tasks == "" {
		return nil, nil //nolint:nilnil // tasks are in memory
	}
	tasks, err := store.Open(filepath.Join(f.tasks, "mcp"), &store.Options{Logger: orDiscard(log)})
	if errors.Is(err, store.ErrInUse) {
		return nil, &exitError{code: exitFailure, err: errors.New("--tasks " + f.tasks + ": another process uses the directory"), hint: "Give each farcall a directory."}
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
