package metrics_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"

	"github.com/farcall-dev/farcall"
	"github.com/farcall-dev/farcall/observe/metrics"
)

func ExampleNew() {
	m := metrics.New(&metrics.Options{Version: "1.0"})

	mux := farcall.NewMux()
	farcall.Handle(mux, "add", func(_ context.Context, n []int) (int, error) {
		return n[0] + n[1], nil
	})
	a, b := farcall.Pipe()
	server := farcall.NewPeer(a, mux, &farcall.Options{Observer: m.Observer()})
	client := farcall.NewPeer(b, nil, nil)
	defer server.Close()
	defer client.Close()
	for range 3 {
		if err := client.Call(context.Background(), "add", []int{1, 2}, nil); err != nil {
			fmt.Println(err)
		}
	}

	http.Handle("/metrics", m) // Prometheus reads it
	answer := httptest.NewRecorder()
	m.ServeHTTP(answer, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	for line := range strings.Lines(answer.Body.String()) {
		if strings.HasPrefix(line, "rpc_server_call_duration_seconds_count") {
			fmt.Print(line)
		}
	}
	// Output:
	// rpc_server_call_duration_seconds_count{error_type="",network_transport="",rpc_method="add",rpc_system_name="jsonrpc"} 3
}
