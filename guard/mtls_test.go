package guard_test

import (
	"crypto/ed25519"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"strings"
	"testing"
	"time"

	"github.com/farcall-dev/farcall/guard"
)

func (c *ca) pem() string {
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: c.cert.Raw}))
}

// below makes an authority that this one has signed.
func (c *ca) below(t *testing.T) *ca {
	t.Helper()
	_, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(3), Subject: pkix.Name{CommonName: "below"}, IsCA: true,
		BasicConstraintsValid: true,
		NotBefore:             time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
		KeyUsage: x509.KeyUsageCertSign,
	}
	raw, err := x509.CreateCertificate(rand.Reader, template, c.cert, key.Public(), c.key)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(raw)
	if err != nil {
		t.Fatal(err)
	}
	return &ca{cert, key}
}

// TestTrustDomain: the listener accepts two authorities, and each may sign for its own trust domain
// only.
func TestTrustDomain(t *testing.T) {
	prod, partner := newCA(t), newCA(t)
	team := prod.below(t)
	c := &guard.Config{MTLS: []guard.Certificate{
		{SAN: "spiffe://prod/*", CA: prod.pem(), Kind: "user", Roles: []string{"admin"}},
		{SAN: "spiffe://prod/*", CA: partner.pem() + newCA(t).pem(), Kind: "agent", ID: "impostor"},
		{SAN: "spiffe://partner/*", CA: partner.pem(), Kind: "service"},
		{SAN: "spiffe://team/*", CA: team.pem(), Kind: "process"},
	}}
	if problems := c.Check(); len(problems) > 0 {
		t.Errorf("%+v", problems)
	}
	_, with := newSecureSite(t, c, nil, prod, tls.VerifyClientCertIfGiven, partner)
	chain := team.issue(t, "spiffe://team/a")
	chain.Certificate = append(chain.Certificate, team.cert.Raw)
	up := team.issue(t, "spiffe://prod/b")
	up.Certificate = append(up.Certificate, team.cert.Raw)
	for name, tt := range map[string]struct {
		cert tls.Certificate
		want any
	}{
		"its own authority": {
			prod.issue(t, "spiffe://prod/admin"),
			"user spiffe://prod/admin by mtls",
		},
		"an authority below it": {up, "user spiffe://prod/b by mtls"},
		"the partner's authority, another entry": {
			partner.issue(t, "spiffe://prod/admin"),
			"agent impostor by mtls",
		},
		"the partner's own": {
			partner.issue(t, "spiffe://partner/x"),
			"service spiffe://partner/x by mtls",
		},
		"the partner's domain by our authority":   {prod.issue(t, "spiffe://partner/x"), unauthenticated},
		"bound to an authority below":             {chain, "process spiffe://team/a by mtls"},
		"signed by the one above what it needs":   {prod.issue(t, "spiffe://team/a"), unauthenticated},
		"signed by another than what it needs":    {partner.issue(t, "spiffe://team/a"), unauthenticated},
		"a name that no entry has, our authority": {prod.issue(t, "spiffe://other/x"), unauthenticated},
	} {
		a := with(tt.cert).call("who", "")
		a.wants(t, tt.want)
		if t.Failed() {
			t.Fatal(name)
		}
	}
}

func TestTrustDomainProblems(t *testing.T) {
	c := &guard.Config{MTLS: []guard.Certificate{
		{SAN: "spiffe://a/*", CA: newCA(t).pem()},
		{SAN: "spiffe://b/*"},
		{SAN: "spiffe://c/*", CA: "ca.pem"},
		{SAN: "spiffe://d/*", CA: "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"},
	}}
	var got []string
	for _, p := range c.Check() {
		got = append(got, p.Path+": "+p.Message)
	}
	for i, want := range []string{
		"mtls[1].ca: it is missing",
		"mtls[2].ca: there is no certificate in PEM",
		"mtls[3].ca: it has a certificate that cannot be read",
	} {
		if len(got) <= i || !strings.HasPrefix(got[i], want) {
			t.Fatalf("%q, want %q", got, want)
		}
	}
}
