package gateway

import (
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// A server that says all the time that its lists change is heard, but does not
// make the gateway tell everybody each time.
func TestPace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		told := map[string]int{}
		p := &pace{do: func(kind string) {
			mu.Lock()
			defer mu.Unlock()
			told[kind]++
		}}
		wait := func(d time.Duration) {
			<-time.After(d)
			synctest.Wait()
		}
		check := func(tools, prompts int) {
			t.Helper()
			mu.Lock()
			defer mu.Unlock()
			if told["tools"] != tools || told["prompts"] != prompts {
				t.Errorf("%v, not %d and %d", told, tools, prompts)
			}
		}
		p.note("tools")
		check(1, 0)
		wait(time.Second)
		check(1, 0)
		for range 1000 {
			p.note("tools")
		}
		p.note("prompts")
		check(2, 1)
		wait(tellEvery)
		check(3, 1) // the last change is announced, too
		wait(time.Second)
		check(3, 1)
		p.note("tools")
		p.note("tools")
		p.end()
		p.note("prompts")
		wait(time.Second)
		check(4, 1)
	})
}
