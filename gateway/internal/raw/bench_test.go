package raw

import (
	"context"
	"testing"

	"github.com/farcall-dev/farcall"
	"github.com/farcall-dev/farcall/jsonrpc"
)

func BenchmarkEcho(b *testing.B) {
	for _, name := range []string{"direct", "pipe", "serve"} {
		b.Run(name, func(b *testing.B) {
			u := New(&Options{Name: "up", Dial: inMemory(newServer())})
			ours, theirs := farcall.Pipe()
			done := make(chan struct{})
			switch name {
			case "direct":
				close(done)
				farcall.NewPeer(theirs, newServer(), nil)
			case "pipe":
				go func() { defer close(done); _ = u.Pipe(context.Background(), theirs) }()
			case "serve":
				close(done)
				farcall.NewPeer(theirs, u, nil)
			}
			client := farcall.NewPeer(ours, nil, nil)
			var result jsonrpc.Raw
			b.ReportAllocs()
			for b.Loop() {
				if err := client.Call(context.Background(), "echo", jsonrpc.Raw(`[1,2]`), &result); err != nil {
					b.Fatal(err)
				}
			}
			client.Close()
			<-done
			_ = u.Close(context.Background())
		})
	}
}
