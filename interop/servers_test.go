package interop

import (
	"context"
	"encoding/json"
	"net"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/creachadair/jrpc2"
	"github.com/creachadair/jrpc2/channel"
	"github.com/creachadair/jrpc2/handler"
	"github.com/ethereum/go-ethereum/rpc"
)

// jrpc2Server serves creachadair/jrpc2 and returns its TCP address.
func jrpc2Server(t *testing.T, framing channel.Framing) string {
	t.Helper()
	methods := handler.Map{
		"echo": func(_ context.Context, req *jrpc2.Request) (any, error) {
			var params json.RawMessage
			if !req.HasParams() {
				return nil, nil
			}
			return params, req.UnmarshalParams(&params)
		},
		"add": handler.New(func(_ context.Context, v []float64) float64 { return v[0] + v[1] }),
		"callback": func(ctx context.Context, req *jrpc2.Request) (any, error) {
			reply, err := jrpc2.ServerFromContext(ctx).Callback(ctx, "ask", []int{1})
			if err != nil {
				return nil, err
			}
			return json.RawMessage(reply.ResultString()), nil
		},
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			wg.Go(func() {
				jrpc2.NewServer(methods, &jrpc2.ServerOptions{AllowPush: true}).Start(framing(c, c)).Wait()
			})
		}
	})
	t.Cleanup(func() {
		l.Close()
		wg.Wait()
	})
	return l.Addr().String()
}

// calculator is a service in the style of go-ethereum: its methods become
// calc_add, calc_echo and so on.
type calculator struct{}

func (calculator) Add(a, b float64) float64               { return a + b }
func (calculator) Echo(v json.RawMessage) json.RawMessage { return v }
func (calculator) Fail() error                            { return calcError{} }
func (calculator) Ticks(ctx context.Context, n int) (*rpc.Subscription, error) {
	notifier, ok := rpc.NotifierFromContext(ctx)
	if !ok {
		return nil, rpc.ErrNotificationsUnsupported
	}
	sub := notifier.CreateSubscription()
	go func() {
		for i := range n {
			notifier.Notify(sub.ID, i)
		}
	}()
	return sub, nil
}

type calcError struct{}

func (calcError) Error() string  { return "it failed" }
func (calcError) ErrorCode() int { return 4711 }
func (calcError) ErrorData() any { return map[string]int{"at": 7} }

// gethServer serves go-ethereum's rpc and returns its HTTP and WebSocket URLs.
func gethServer(t *testing.T) (httpURL, wsURL string) {
	t.Helper()
	s := rpc.NewServer()
	if err := s.RegisterName("calc", calculator{}); err != nil {
		t.Fatal(err)
	}
	hs := httptest.NewServer(s)
	ws := httptest.NewServer(s.WebsocketHandler([]string{"*"}))
	t.Cleanup(func() {
		s.Stop()
		hs.Close()
		ws.Close()
	})
	return hs.URL + "/", "ws" + strings.TrimPrefix(ws.URL, "http") + "/"
}
