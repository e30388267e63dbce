package raw

import (
	"bufio"
	"io"
	"net"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/farcall-dev/farcall"
	"github.com/farcall-dev/farcall/stream"
)

// What may go on goes on, whatever comes after it and is answered here: the pipe holds
// no frame back for one that may never come. Every order of what there is, in one write.
func TestNothingIsHeld(t *testing.T) {
	t.Parallel()
	kinds := []struct {
		frame, there string // there is what the upstream gets
		answers      int
	}{
		{call("1", "a", "[]"), call("1", "a", "[]"), 0},
		{call("2", "deny", "[]"), "", 1},
		{`{"jsonrpc":"2.0","method":"deny"}`, "", 0},
		{`{garbage`, "", 1},
		{call("3", "large", `["`+strings.Repeat("x", 400)+`"]`), "", 1},
		{
			`[` + call("4", "deny", "[]") + `,` + call("5", "b", "[]") + `]`,
			`[` + call("5", "b", "[]") + `]`, 1,
		},
		{`[` + call("6", "deny", "[]") + `,` + call("7", "deny", "[]") + `]`, "", 1},
	}
	synctest.Test(t, func(t *testing.T) {
		s, w := newScripted(), &porter{t: t}
		u := open(t, &Options{Dial: s.dial, Admit: w.admit, MaxMessage: 300})
		p := pipeTo(t, u)
		p.send(t, call("0", "first", "[]"))
		server := <-s.made
		if _, err := server.Read(); err != nil {
			t.Fatal(err)
		}
		waiting := func(tr farcall.Transport) bool { return tr.(farcall.Buffered).Buffered() }
		for n := range len(kinds) * len(kinds) * len(kinds) {
			order := [...]int{n / len(kinds) / len(kinds), n / len(kinds) % len(kinds), n % len(kinds)}
			var frames [][]byte
			for _, k := range order {
				frames = append(frames, []byte(kinds[k].frame))
			}
			if err := p.Write(frames...); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
			for _, k := range order {
				if kinds[k].there == "" {
					continue
				}
				if !waiting(server) {
					t.Fatalf("%q: the upstream waits for %s", frames, kinds[k].there)
				}
				if got, err := server.Read(); string(got) != kinds[k].there || err != nil {
					t.Fatalf("%q: %s, %v, want %s", frames, got, err, kinds[k].there)
				}
			}
			for _, k := range order {
				for range kinds[k].answers {
					if !waiting(p.Transport) {
						t.Fatalf("%q: an answer is missing", frames)
					}
					if _, err := p.Read(); err != nil {
						t.Fatal(err)
					}
				}
			}
			if waiting(server) || waiting(p.Transport) {
				t.Fatalf("%q: there is more", frames)
			}
		}
		p.Close()
		<-p.done
		if n := w.left(); n != 0 {
			t.Errorf("%d have not ended", n)
		}
	})
}

// The same without an admission, over a stream; its own refusals count as well.
func TestNothingIsHeldUnscreened(t *testing.T) {
	t.Parallel()
	for name, after := range map[string]string{
		"garbage": "{garbage", "an empty batch": "[]", "no message": "17",
		"too large": `{"id":"` + strings.Repeat("x", 300) + `"}`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := newScripted()
				u := open(t, &Options{Dial: s.dial})
				far, near := net.Pipe()
				done := make(chan error, 1)
				go func() {
					done <- u.Pipe(t.Context(), stream.New(near, stream.NDJSON, &stream.Options{MaxMessage: 200}))
				}()
				server := <-s.made
				if _, err := io.WriteString(far, call("1", "a", "[]")+"\n"+after+"\n"); err != nil {
					t.Fatal(err)
				}
				answer, err := bufio.NewReader(far).ReadString('\n')
				if err != nil || !strings.Contains(answer, `"error"`) {
					t.Errorf("%s, %v", answer, err)
				}
				synctest.Wait()
				if !server.(farcall.Buffered).Buffered() {
					t.Error("the call is held back")
				}
				far.Close()
				server.Close()
				<-done
			})
		})
	}
}

// What an upstream asks over a connection that calls share is answered at once, although
// what follows it is kept from those who call.
func TestAnswersToUpstreamsAreNotHeld(t *testing.T) {
	t.Parallel()
	for name, after := range map[string]string{
		"garbage": "Listening",
		"invalid": `{"jsonrpc":"2.0","method":1}`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := newScripted()
				u := open(t, &Options{Dial: s.dial})
				ours, theirs := farcall.Pipe()
				peer := farcall.NewPeer(theirs, u, nil)
				if err := ours.Write([]byte(call("1", "a", "[]"))); err != nil {
					t.Fatal(err)
				}
				server := <-s.made
				asked, err := server.Read()
				if err != nil {
					t.Fatal(err)
				}
				if err := server.Write([]byte(call("7", "question", "[]")), []byte(after)); err != nil {
					t.Fatal(err)
				}
				synctest.Wait()
				if !server.(farcall.Buffered).Buffered() {
					t.Errorf("after %s the answer is held back", asked)
				}
				ours.Close()
				peer.Close()
				server.Close()
			})
		})
	}
}
