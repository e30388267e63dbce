package upstream
import ("testing";"sync";"fmt";"strings";"sync/atomic";"github.com/farcall-dev/farcall/jsonrpc")
func TestZZLogs(t *testing.T) {
	l := newLab(t, legacy)
	u := l.upstream(Options{})
	var logs, wrong atomic.Int64
	var wg sync.WaitGroup
	for k := range 40 {
		wg.Go(func() {
			who := asker(fmt.Sprint("s",k))
			c := toolCall("ask", "q", who)
			c.Ask = answerWith("")
			for range 3 { do(t.Context(), u, c) }
			for i := range 100 {
				id := fmt.Sprint(k,"-", i)
				c := toolCall("tell", id, who)
				c.LogLevel = "info"
				c.Notice = func(_ string, p jsonrpc.Raw) { logs.Add(1); if !strings.Contains(string(p), `"`+id+`"`) {wrong.Add(1)} }
				mustDo(t, u, c, id)
			}
		})
	}
	wg.Wait()
	t.Log(logs.Load(), "of 12000; wrong", wrong.Load(), "dropped", u.Status().Dropped)
}
