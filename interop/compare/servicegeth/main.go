// Command servicegeth is examples/service with go-ethereum's rpc, as far as that has it: there are
// no interceptors, so calls are neither logged nor refused, and a stream is a subscription, over
// WebSocket only.
package main

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"os"
	"time"

	"github.com/ethereum/go-ethereum/rpc"
)

type demo struct{}

func (demo) Sum(numbers []float64) (sum float64) {
	for _, n := range numbers {
		sum += n
	}
	return sum
}

func (demo) Countdown(ctx context.Context, from int) (*rpc.Subscription, error) {
	if from < 0 || from > 1000 {
		return nil, errors.New("from must be from 0 to 1000")
	}
	notifier, ok := rpc.NotifierFromContext(ctx)
	if !ok {
		return nil, rpc.ErrNotificationsUnsupported
	}
	sub := notifier.CreateSubscription()
	go func() {
		for n := from; n >= 0; n-- {
			select {
			case <-sub.Err():
				return
			default:
			}
			if notifier.Notify(sub.ID, n) != nil {
				return
			}
		}
	}()
	return sub, nil
}

func main() {
	h, err := service()
	if err == nil {
		s := &http.Server{Addr: "localhost:8080", Handler: h, ReadHeaderTimeout: 10 * time.Second}
		err = s.ListenAndServe()
	}
	slog.Error("the service has ended", "error", err)
	os.Exit(1)
}

func service() (http.Handler, error) {
	server := rpc.NewServer()
	if err := server.RegisterName("demo", demo{}); err != nil {
		return nil, err
	}
	web := http.NewServeMux()
	web.Handle("POST /rpc", server)
	web.Handle("GET /rpc/ws", server.WebsocketHandler(nil))
	return web, nil
}
