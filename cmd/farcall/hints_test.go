package main

import (
	"crypto/tls"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/farcall-dev/farcall/httprpc"
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

// A server that answers with 401 names the credentials that it wants (RFC 9110, section 15.5.2).
func TestHintOfChallenge(t *testing.T) {
	to, err := parseTarget("http://127.0.0.1:1/rpc")
	if err != nil {
		t.Fatal(err)
	}
	asks := &httprpc.StatusError{Code: http.StatusUnauthorized, Challenge: "Bearer"}
	if got := protocolHint(to, asks); !strings.Contains(got, "--bearer FILE") {
		t.Error(got)
	}
	if got := protocolHint(to, &httprpc.StatusError{Code: http.StatusUnauthorized}); strings.Contains(
		got, "--bearer") {
		t.Error("it guesses:", got)
	}
}

// A server that closes the connection in place of an answer was reached.
func TestClosedWithoutAnswer(t *testing.T) {
	closes := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		panic(http.ErrAbortHandler)
	}))
	defer closes.Close()
	out, err := program(t, "call", closes.URL, "x").CombinedOutput()
	if got := string(out); err == nil ||
		!strings.Contains(got, "closed the connection without an answer") {
		t.Errorf("%v: %s", err, got)
	}
}
