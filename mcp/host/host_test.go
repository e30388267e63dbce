package host

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/farcall-dev/farcall"
	"github.com/farcall-dev/farcall/mcp"
)

func addTool(s *mcp.Server, server, tool string) {
	mcp.AddTool(s, mcp.Tool{Name: tool}, func(context.Context, struct{}) (string, error) {
		return server + " " + tool, nil
	})
}

// A fake is a server that can die, come back, and change its tools.
type fake struct {
	name string

	mu    sync.Mutex
	up    bool
	tools map[string]bool
	s     *mcp.Server
	kill  []func()
	wait  sync.WaitGroup
}

func newFake(name string) *fake {
	return &fake{name: name, up: true, tools: map[string]bool{}, s: newServer(name)}
}

var errDown = errors.New("the server is down")

func (f *fake) dial(context.Context) (farcall.Transport, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.up {
		return nil, errDown
	}
	near, far := farcall.Pipe()
	f.kill = append(f.kill, func() { _ = far.Close() })
	f.wait.Go(func() { _ = f.s.Serve(context.Background(), far) })
	return near, nil
}

// set makes the server die, or come back.
func (f *fake) set(up bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.up = up
	if !up {
		for _, kill := range f.kill {
			kill()
		}
		f.kill = nil
	}
}

func (f *fake) flip(tool string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.tools[tool] = !f.tools[tool]; f.tools[tool] {
		addTool(f.s, f.name, tool)
	} else {
		f.s.RemoveTool(tool)
	}
}

// newHost returns a host that is closed at the end of the test.
func newHost(t *testing.T, servers []Server, o *Options) *Host {
	t.Helper()
	h, err := New(t.Context(), servers, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := h.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return h
}

func namesOf(l List[mcp.Tool]) (names []string) {
	for _, item := range l.Items {
		names = append(names, item.Value.Name)
	}
	slices.Sort(names)
	return names
}

// Whatever happens to the servers: when nothing happens any more, the tools are those of the
// servers that are up, the others are missing, and a call reaches the server that its name says.
func TestModel(t *testing.T) {
	for seed := range uint64(20) {
		synctest.Test(t, func(t *testing.T) { model(t, rand.New(rand.NewPCG(seed, 0))) })
	}
}

func model(t *testing.T, random *rand.Rand) {
	era := []string{"modern", "legacy"}[random.IntN(2)]
	fakes := map[string]*fake{}
	configured := map[string]bool{}
	var servers []Server
	for i := range 5 {
		f := newFake(fmt.Sprintf("s-%d", i))
		fakes[f.name], configured[f.name] = f, true
		servers = append(servers, Server{Name: f.name, Dial: f.dial})
		for n := range 3 {
			f.flip(fmt.Sprint("first__", n))
		}
	}
	changes := 0
	h := newHost(t, servers,
		&Options{
			Client: &mcp.ClientOptions{Era: era}, MaxFailures: -1, MaxDelay: time.Second,
			OnChange: func(string) {
				changes++
			},
		})
	defer func() {
		for _, f := range fakes {
			f.set(false)
			f.wait.Wait()
		}
	}()
	names := slices.Sorted(maps.Keys(fakes))
	for round := range 30 {
		for range random.IntN(6) {
			f := fakes[names[random.IntN(len(names))]]
			switch random.IntN(10) {
			case 0, 1:
				f.set(false)
			case 2, 3, 4:
				f.set(true)
			case 5:
				go func() { _ = h.Restart(t.Context(), f.name) }()
			case 6:
				configured[f.name] = !configured[f.name]
				if err := h.Apply(slices.DeleteFunc(slices.Clone(servers), func(s Server) bool {
					return !configured[s.Name]
				})); err != nil {
					t.Fatal(err)
				}
			default:
				f.flip(fmt.Sprint("tool-", random.IntN(4)))
			}
			if random.IntN(2) == 0 {
				synctest.Wait()
			}
		}
		<-time.After(5 * time.Second)
		synctest.Wait()
		quiet(t, h, fakes, configured, round)
		if t.Failed() {
			return
		}
	}
	if changes == 0 {
		t.Error("OnChange was never called")
	}
}

func quiet(t *testing.T, h *Host, fakes map[string]*fake, configured map[string]bool, round int) {
	t.Helper()
	var want, missing []string
	for name, f := range fakes {
		switch {
		case !configured[name]:
			if _, err := h.CallTool(t.Context(), name+"__first__0", nil); !errors.Is(err, ErrUnknown) {
				t.Errorf("round %d: a call of a server that was removed: %v", round, err)
			}
		case !f.up:
			missing = append(missing, name)
			if _, err := h.CallTool(t.Context(), name+"__first__0", nil); !errors.Is(err, ErrNotReady) ||
				!errors.Is(err, errDown) {
				t.Errorf("round %d: a call of a server that is down: %v", round, err)
			}
		default:
			for tool, is := range f.tools {
				if is {
					want = append(want, name+"__"+tool)
				}
			}
		}
	}
	slices.Sort(want)
	slices.Sort(missing)
	got := h.Tools()
	if names := namesOf(got); !slices.Equal(names, want) {
		t.Errorf("round %d: tools %q, want %q", round, names, want)
	}
	var lacks []string
	for _, s := range got.Missing {
		lacks = append(lacks, s.Name)
		if !errors.Is(s.Err, errDown) {
			t.Errorf("round %d: %s is missing because of %v", round, s.Name, s.Err)
		}
	}
	slices.Sort(lacks)
	if !slices.Equal(lacks, missing) {
		t.Errorf("round %d: missing %q, want %q", round, lacks, missing)
	}
	for _, item := range got.Items {
		r, err := h.CallTool(t.Context(), item.Value.Name, nil)
		if want := item.Server + " " + item.Value.Name[len(item.Server)+2:]; err != nil ||
			r.Content[0].Text != want {
			t.Errorf("round %d: %s answers %+v, %v; want %q", round, item.Value.Name, r, err, want)
		}
	}
}
