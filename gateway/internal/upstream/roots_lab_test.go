package upstream

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/farcall-dev/farcall"
	"github.com/farcall-dev/farcall/jsonrpc"
	"github.com/farcall-dev/farcall/mcp"
	"github.com/farcall-dev/farcall/mcp/spec"
)

const canList = `{"roots":{}}`

// A rootsLab starts servers that ask for the roots on their own, as server-filesystem does, and use
// the last ones that they were given.
type rootsLab struct {
	t     *testing.T
	ask   func() time.Duration // until a server asks
	apply func() time.Duration // until it uses what it got
	late  bool                 // a server asks in a call, and only then
	wg    sync.WaitGroup

	mu    sync.Mutex
	all   []*rootsServer
	moved []string // what must not be
}

// A rootsServer is one connection. Each call says in its arguments who makes it and which roots the
// client may have, and gets the root in force.
type rootsServer struct {
	lab *rootsLab

	mu       sync.Mutex
	declared bool
	root     string
	given    []string // the roots that it ever got
	callers  []string // the callers that it served
	held     func()   // answers the call that waits for the roots
}

func newRootsLab(t *testing.T, ask, apply time.Duration) *rootsLab {
	t.Helper()
	always := func(d time.Duration) func() time.Duration { return func() time.Duration { return d } }
	return &rootsLab{t: t, ask: always(ask), apply: always(apply)}
}

func (l *rootsLab) upstream(o Options) *Upstream {
	o.Name, o.Exclusive = "roots", true
	o.Dial = func(ctx context.Context, o *mcp.ClientOptions) (*mcp.Client, error) {
		mine, theirs := farcall.Pipe()
		s := &rootsServer{lab: l}
		l.mu.Lock()
		l.all = append(l.all, s)
		l.mu.Unlock()
		l.wg.Go(func() { s.serve(theirs) })
		return mcp.Connect(ctx, mine, o)
	}
	u := New(&o)
	l.t.Cleanup(func() { l.close(u) })
	return u
}

func (l *rootsLab) close(u *Upstream) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	_ = u.Close(ctx)
	l.wg.Wait()
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, text := range l.moved {
		l.t.Error(text)
	}
	l.moved = nil
}

func (l *rootsLab) count() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.all)
}

// serve reads and answers one message after the other, as a server with one thread does.
func (s *rootsServer) serve(t farcall.Transport) {
	defer t.Close()
	for {
		frame, err := t.Read()
		if err != nil {
			return
		}
		var m struct {
			ID             jsonrpc.Raw `json:"id"`
			Method         string      `json:"method"`
			Params, Result jsonrpc.Raw
		}
		if err := json.Unmarshal(frame, &m); err != nil {
			s.lab.t.Error(err)
			return
		}
		var result string
		switch m.Method {
		case spec.MethodInitialize:
			s.mu.Lock()
			s.declared = strings.Contains(string(m.Params), `"roots"`)
			s.mu.Unlock()
			result = `{"protocolVersion":"` + legacy +
				`","capabilities":{"tools":{}},"serverInfo":{"name":"roots","version":"1"}}`
		case spec.NotificationInitialized, spec.NotificationRootsListChanged:
			if s.lab.late {
				continue
			}
			s.after(s.lab.ask(), func() {
				_ = t.Write([]byte(`{"jsonrpc":"2.0","id":"r","method":"roots/list"}`))
			})
		case "":
			s.answered(m.Result)
			if s.held != nil {
				s.held()
			}
		case spec.MethodToolsList:
			result = `{"tools":[]}`
		case spec.MethodToolsCall:
			if s.lab.late {
				s.held = func() {
					_ = t.Write(fmt.Appendf(nil, `{"jsonrpc":"2.0","id":%s,"result":%s}`, m.ID, s.call(m.Params)))
				}
				_ = t.Write([]byte(`{"jsonrpc":"2.0","id":"r","method":"roots/list"}`))
				continue
			}
			result = s.call(m.Params)
		default:
			result = `{}`
		}
		if m.ID != nil && m.Method != "" {
			_ = t.Write(fmt.Appendf(nil, `{"jsonrpc":"2.0","id":%s,"result":%s}`, m.ID, result))
		}
	}
}

// after does something now or, where connections declare roots, later.
func (s *rootsServer) after(d time.Duration, do func()) {
	s.mu.Lock()
	declared := s.declared
	s.mu.Unlock()
	switch {
	case !declared:
	case d == 0:
		do()
	default:
		s.lab.wg.Go(func() {
			<-time.After(d)
			do()
		})
	}
}

// answered takes the roots in.
func (s *rootsServer) answered(result jsonrpc.Raw) {
	var r spec.ListRootsResult
	if json.Unmarshal(result, &r) != nil || len(r.Roots) == 0 {
		return
	}
	s.mu.Lock()
	s.given = append(s.given, r.Roots[0].URI)
	s.mu.Unlock()
	s.after(s.lab.apply(), func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.root = r.Roots[0].URI
	})
}

// call answers with the root in force. It notes what must not be: a call of one owner on the
// connection of another one, and roots that are not the caller's.
func (s *rootsServer) call(params jsonrpc.Raw) (result string) {
	var p struct {
		Arguments struct {
			Who   string   `json:"who"`
			Roots []string `json:"roots"`
		} `json:"arguments"`
	}
	if err := json.Unmarshal(params, &p); err != nil {
		s.lab.t.Error(err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lab.mu.Lock()
	defer s.lab.mu.Unlock()
	for _, root := range s.given {
		if !slices.Contains(p.Arguments.Roots, root) {
			s.lab.moved = append(s.lab.moved,
				fmt.Sprintf("a call of %s, of roots %q, on a connection with the roots %q", p.Arguments.Who,
					p.Arguments.Roots, s.given))
		}
	}
	if p.Arguments.Who != "" {
		s.callers = append(s.callers, p.Arguments.Who)
		if s.callers[0] != p.Arguments.Who {
			s.lab.moved = append(s.lab.moved,
				fmt.Sprintf("a call of %s on a connection of %s", p.Arguments.Who, s.callers[0]))
		}
	}
	return fmt.Sprintf(`{"content":[{"type":"text","text":%q}]}`, s.root)
}
