package main

import (
	"crypto/tls"
	"net"
	"strings"
	"testing"
)

// A server that requires a client certificate says so by an alert (RFC 8446, section 6).
func TestHintOfRequiredCertificate(t *testing.T) {
	const certificateRequired = 116
	to, err := parseTarget("tls://127.0.0.1:1")
	if err != nil {
		t.Fatal(err)
	}
	alert := &net.OpError{Op: "remote error", Err: tls.AlertError(certificateRequired)}
	if got := connectHint(to, alert); !strings.Contains(got, "--cert FILE --key FILE") {
		t.Error(got)
	}
}
