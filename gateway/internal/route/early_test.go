package route

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/farcall-dev/farcall/jsonrpc"
)

// A source that hangs holds up neither who looks for what another one has, nor,
// once it is known to hang, for long who lists.
func TestHangingSourceIsNotWaitedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		good, hangs := &fake{}, &fake{before: func(ctx context.Context) { <-ctx.Done() }}
		good.set(Tools, List{Items: []jsonrpc.Raw{jsonrpc.Raw(`{"name":"echo"}`)}})
		v := NewView([]Source{{Name: "hangs", List: hangs.list}, {Name: "good", List: good.list}}, nil)
		defer v.Close()
		took := func(f func()) time.Duration {
			began := time.Now()
			f()
			return time.Since(began)
		}
		find := func() {
			if target, ok, err := v.Find(t.Context(), Tools, "echo"); !ok || err != nil || target.Source != "good" {
				t.Error(target, ok, err)
			}
		}
		list := func() {
			if page, err := v.Page(t.Context(), Tools, ""); err != nil || len(page.Items) != 1 || len(page.Missing) != 1 {
				t.Error(page, err)
			}
		}
		if d := took(find); d != 0 {
			t.Errorf("it was found after %v", d)
		}
		if d := took(list); d != 10*time.Second {
			t.Errorf("it was first listed after %v", d)
		}
		<-time.After(time.Minute) // that attempt is over
		if d := took(list); d != time.Second {
			t.Errorf("it was listed again after %v", d)
		}
		if d := took(find); d != 0 {
			t.Errorf("it was found after %v", d)
		}
	})
}
