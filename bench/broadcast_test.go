package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/farcall-dev/farcall"
	"github.com/farcall-dev/farcall/stream"
)

const subscribers = 1000

// BenchmarkBroadcast gives events to 1,000 subscribers, in turns with writing the same bytes to as
// many connections. The metric is the median of the ratios; it is wanted to be at most 1.2.
func BenchmarkBroadcast(b *testing.B) {
	for _, network := range []string{"tcp", "unix"} {
		for _, size := range []int{20, 1000, 16_000} {
			b.Run(fmt.Sprint(network, " ", size, " bytes"), func(b *testing.B) {
				broadcast(b, network, size)
			})
		}
	}
}

func broadcast(b *testing.B, network string, size int) {
	var topic farcall.Topic[string]
	mux := farcall.NewMux()
	farcall.HandleTopic(mux, "news", func(context.Context, struct{}) (*farcall.Topic[string], error) {
		return &topic, nil
	})
	const subscribe, answer = `{"jsonrpc":"2.0","method":"subscribe","params":["news"],"id":1}` + "\n",
		`{"jsonrpc":"2.0","result":"0x1","id":1}` + "\n"
	var plain []net.Conn
	for range subscribers {
		near, far := socketPair(b, network)
		peer := farcall.NewPeer(stream.New(near, stream.NDJSON, nil), mux, nil)
		b.Cleanup(func() { peer.Close() })
		if _, err := far.Write([]byte(subscribe)); err != nil {
			b.Fatal(err)
		}
		got := make([]byte, len(answer))
		if _, err := io.ReadFull(far, got); err != nil || string(got) != answer {
			b.Fatal(string(got), err)
		}
		go io.Copy(io.Discard, far)
		near, far = socketPair(b, network)
		go io.Copy(io.Discard, far)
		plain = append(plain, near)
	}
	event := strings.Repeat("x", size)
	frame := fmt.Appendf(nil,
		`{"jsonrpc":"2.0","method":"subscription","params":{"subscription":"0x1","result":%q}}`+"\n",
		event)
	publish := func() {
		if err := topic.Publish(event); err != nil {
			b.Fatal(err)
		}
	}
	write := func() {
		for _, c := range plain {
			if _, err := c.Write(frame); err != nil {
				b.Fatal(err)
			}
		}
	}
	var ratios []float64
	for i := 0; b.Loop(); i++ {
		var took [2]time.Duration
		for _, which := range [2]int{i % 2, 1 - i%2} { // each is first as often
			begun := time.Now()
			[2]func(){publish, write}[which]()
			took[which] = time.Since(begun)
		}
		ratios = append(ratios, float64(took[0])/float64(took[1]))
	}
	slices.Sort(ratios)
	b.ReportMetric(ratios[len(ratios)/2], "×writing")
	b.ReportMetric(0, "ns/op") // of both
}

// socketPair returns the two ends of a connection.
func socketPair(b *testing.B, network string) (near, far net.Conn) {
	b.Helper()
	address := "127.0.0.1:0"
	if network == "unix" {
		address = filepath.Join(b.TempDir(), "s")
	}
	l, err := net.Listen(network, address)
	if err != nil {
		b.Fatal(err)
	}
	defer l.Close()
	if far, err = net.Dial(network, l.Addr().String()); err == nil {
		near, err = l.Accept()
	}
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { near.Close(); far.Close() })
	return near, far
}
