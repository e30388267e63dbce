package raw

import (
	"bufio"
	"context"
	"io"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/farcall-dev/farcall"
	"github.com/farcall-dev/farcall/stream"
)

// TestUnreadAnswers has a server answer with what is not read: too large, or no JSON. The call ends
// at once with an error, and the connection goes on; what is no answer is passed over.
func TestUnreadAnswers(t *testing.T) {
	for name, answer := range map[string]string{
		"too large":        `{"jsonrpc":"2.0","id":1,"result":"` + strings.Repeat("x", 5000) + `"}`,
		"too large, by id": `{"jsonrpc":"2.0","result":"` + strings.Repeat("x", 5000) + `","id":1}`,
		"no JSON":          `{"jsonrpc":"2.0","id":1,"result":"` + "\x01" + `"}`,
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ours, theirs := net.Pipe()
				go func() {
					in := bufio.NewReader(theirs)
					for {
						line, err := in.ReadString('\n')
						if err != nil {
							return
						}
						out := strings.Repeat("log ", 1000) + "\n"
						if strings.Contains(line, "large") {
							out += answer + "\n"
						} else {
							out += `{"jsonrpc":"2.0","id":2,"result":"small"}` + "\n"
						}
						if _, err := io.WriteString(theirs, out); err != nil {
							return
						}
					}
				}()
				u := New(&Options{Name: "up", Dial: func(context.Context) (farcall.Transport, error) {
					return stream.New(ours, stream.NDJSON, &stream.Options{MaxMessage: 1000}), nil
				}})
				begun := time.Now()
				if got, _ := respond(t, u, call("7", "large", `[]`)); !strings.Contains(got, `"error"`) ||
					!strings.Contains(got, `"id":7`) {
					t.Error(got)
				}
				if took := time.Since(begun); took > time.Second {
					t.Errorf("the call took %v", took)
				}
				if got, _ := respond(t, u, call("8", "small", `[]`)); got != result("8", `"small"`) {
					t.Error(got)
				}
				shut(t, u)
				_ = theirs.Close()
			})
		})
	}
}

// TestPipedUnreadAnswers is the same for a client with frames that are carried: it gets an error in
// place of the answer.
func TestPipedUnreadAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ours, theirs := net.Pipe()
		u := New(
			&Options{Name: "up", MaxMessage: 1000, Dial: func(context.Context) (farcall.Transport, error) {
				return stream.New(ours, stream.NDJSON, &stream.Options{MaxMessage: 1000}), nil
			}})
		p := pipeTo(t, u)
		in := bufio.NewReader(theirs)
		for id, answer := range map[string]string{
			"2":   `{"jsonrpc":"2.0","id":2,"result":"` + "\x01" + `"}`,
			"1":   `{"jsonrpc":"2.0","id":1,"result":"` + strings.Repeat("x", 5000) + `"}`,
			`"a"`: `{"id":"a","error":{"code":1,"message":"` + strings.Repeat("x", 5000) + `"}}`,
		} {
			p.send(t, call(id, "large", `[]`))
			if _, err := in.ReadString('\n'); err != nil {
				t.Fatal(err)
			}
			if _, err := io.WriteString(theirs, answer+"\n"); err != nil {
				t.Fatal(err)
			}
			if id == "2" {
				p.expectLike(t, "could not be read", `"sent":"unknown"`, `"id":2`)
				continue
			}
			p.expectLike(t, "-32012", `"maxSize":1000`, `"id":`+id)
		}
		if st := u.Status(); st.InFlight != 0 || st.Errors != 3 || st.State != "up" {
			t.Errorf("%+v", st)
		}
		p.Close()
		<-p.done
		_ = theirs.Close()
		shut(t, u)
	})
}
