package fetch

import (
	"fmt"
	"net"
	"net/http"
	"net/url"
	"time"
)

// Transport returns a transport for requests to an address that was learned from origin: it
// connects to what Client.Do would connect to, at every dial, and keeps connections open. private
// is Options.Private. It uses no proxy of the environment.
func Transport(address, origin *url.URL, private bool) (*http.Transport, error) {
	c := New(&Options{Private: private})
	may, err := c.check(address, origin)
	if err != nil {
		return nil, fmt.Errorf("fetch %s: %w", name(address), err)
	}
	dialer := &net.Dialer{Timeout: defaultTimeout, Control: control(may)}
	return &http.Transport{
		DialContext:            dialer.DialContext,
		ForceAttemptHTTP2:      true,
		MaxResponseHeaderBytes: maxHeaderBytes,
		MaxIdleConnsPerHost:    16,
		IdleConnTimeout:        90 * time.Second,
		TLSHandshakeTimeout:    defaultTimeout,
	}, nil
}
