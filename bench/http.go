package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"

	"github.com/creachadair/jrpc2/jhttp"
)

// An httpServer is one implementation that answers an HTTP POST. All are asked by
// the same client.
type httpServer struct {
	name  string
	body  string // the request
	start func() (h http.Handler, stop func(), err error)
}

// httpRequest calls echo; geth names and passes things its own way.
const (
	httpRequest = `{"jsonrpc":"2.0","id":12345,"method":"echo","params":` + echoParams + `}`
	gethRequest = `{"jsonrpc":"2.0","id":12345,"method":"bench_echo","params":[` + echoParams + `]}`
	httpAnswer  = `{"jsonrpc":"2.0","id":12345,"result":` + echoParams + `}`
)

var httpServers = []httpServer{
	{"net/http echo", httpAnswer, func() (http.Handler, func(), error) {
		return http.HandlerFunc(echoHTTP), func() {}, nil
	}},
	{"farcall", httpRequest, farcallHTTP},
	{"jrpc2", httpRequest, func() (http.Handler, func(), error) {
		bridge := jhttp.NewBridge(jrpc2Methods, nil)
		return bridge, func() { bridge.Close() }, nil
	}},
	{"geth", gethRequest, func() (http.Handler, func(), error) {
		s, err := gethServer()
		return s, s.Stop, err
	}},
}

// echoHTTP is the floor: it writes back what it read.
func echoHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.Write(body)
}

func httpGroup(workers int) string {
	if workers == 1 {
		return "HTTP POST, sequential"
	}
	return fmt.Sprintf("HTTP POST, %d in flight", workers)
}

func httpGroups() []group {
	var groups []group
	for _, workers := range []int{1, inFlight} {
		g := group{name: httpGroup(workers), workers: workers, base: "net/http echo"}
		for _, h := range httpServers {
			g.subjects = append(g.subjects, subject{h.name, h.running})
		}
		groups = append(groups, g)
	}
	return groups
}

func (h httpServer) running() (*running, error) {
	serve, stop, err := h.start()
	if err != nil {
		return nil, err
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	srv := &http.Server{Handler: serve}
	go srv.Serve(l)
	transport := &http.Transport{MaxIdleConnsPerHost: inFlight}
	client := &http.Client{Transport: transport}
	url := "http://" + l.Addr().String() + "/"
	worker := func() func(int) error {
		var answer bytes.Buffer
		return func(n int) error {
			for range n {
				answer.Reset()
				if err := post(client, url, h.body, &answer); err != nil {
					return fmt.Errorf("%s: %w", h.name, err)
				}
			}
			return nil
		}
	}
	return &running{worker: worker, stop: func() {
		transport.CloseIdleConnections()
		srv.Close()
		stop()
	}}, nil
}

// post asks once and looks at the answer.
func post(client *http.Client, url, body string, answer *bytes.Buffer) error {
	req, err := http.NewRequest(http.MethodPost, url, bytes.NewReader([]byte(body)))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	res, err := client.Do(req)
	if err != nil {
		return err
	}
	_, err = answer.ReadFrom(res.Body)
	if err = errors.Join(err, res.Body.Close()); err != nil {
		return err
	}
	if res.StatusCode != http.StatusOK || !bytes.Contains(answer.Bytes(), []byte(`{"name":"add"`)) {
		return fmt.Errorf("answered %s: %s", res.Status, answer)
	}
	return nil
}
