package main

import (
	"strings"
	"testing"
)

// faultProxy runs farcall fault between a listener and a server, and returns its address.
func faultProxy(t *testing.T, args ...string) string {
	t.Helper()
	return listening(t, append([]string{"fault", "-q"}, args...)...)
}

// Over each transport a client of ours gets an answer or an error in its time, whatever the fault.
func TestFaultTransports(t *testing.T) {
	t.Parallel()
	server := serve(t, "--listen", "127.0.0.1:0", "--log", "off")
	host := strings.TrimPrefix(server.addrs[0], "http://")
	for _, scheme := range []string{"tcp", "http", "ws"} {
		for rule, want := range map[string]string{
			"duplicate": "06", "split:size=2": "0", "delay:delay=1ms": "0", "slow:delay=1ms": "0",
			"reorder:delay=1ms": "0",
			"error":             "4", "half": "36", "close": "36", "reset": "36", "drop": "5",
			"silence":       "5",
			"late:delay=1m": "5", "wrong-id": "56",
			"bad-utf8": "6", "duplicate-member": "056", "garbage": "6", "huge:size=1000": "0",
			"error:every=2": "0",
		} {
			address := faultProxy(t, "--fault", rule, scheme+"://127.0.0.1:0", scheme+"://"+host)
			timeout := "1m" // an answer or an error comes however busy the machine is
			if strings.Contains(want, "5") {
				timeout = "500ms" // neither may come
			}
			var out, errs strings.Builder
			code := run(t.Context(), []string{
				"call", "--timeout", timeout, scheme + "://" + address,
				"math/add", "2", "3",
			}, strings.NewReader(""), &out, &errs)
			if !strings.ContainsRune(want, rune('0'+code)) {
				t.Errorf("%s %s: exit status %d, want one of %s: %s%s", scheme, rule, code, want, out.String(),
					errs.String())
			}
		}
	}
}
