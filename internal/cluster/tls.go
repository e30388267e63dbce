package cluster

import (
	"crypto/ed25519"
	"crypto/hkdf"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"math/big"
	"time"
)

// serverName is the name in the certificates of all nodes.
const serverName = "cluster.farcall"

// Mutual returns a TLS configuration with which nodes that have the same secret, and no other
// programs, accept each other. The secret is the private key of an authority, which signs a
// certificate for this process: no certificate is stored, or has to be renewed.
func Mutual(secret []byte) (*tls.Config, error) {
	seed, err := hkdf.Key(sha256.New, secret, nil, "farcall cluster: authority", ed25519.SeedSize)
	if err != nil {
		return nil, err
	}
	authority := ed25519.NewKeyFromSeed(seed)
	root := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "farcall cluster"},
		// Clocks of nodes may differ, and the secret has no end.
		NotBefore: time.Unix(0, 0), NotAfter: time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	raw, err := x509.CreateCertificate(rand.Reader, root, root, authority.Public(), authority)
	if err != nil {
		return nil, err
	}
	if root, err = x509.ParseCertificate(raw); err != nil {
		return nil, err
	}
	public, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return nil, err
	}
	leaf := &x509.Certificate{
		SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: "a node"},
		DNSNames: []string{serverName}, KeyUsage: x509.KeyUsageDigitalSignature,
		NotBefore: root.NotBefore, NotAfter: root.NotAfter,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	if raw, err = x509.CreateCertificate(rand.Reader, leaf, root, public, authority); err != nil {
		return nil, err
	}
	pool := x509.NewCertPool()
	pool.AddCert(root)
	return &tls.Config{
		MinVersion:   tls.VersionTLS13,
		Certificates: []tls.Certificate{{Certificate: [][]byte{raw}, PrivateKey: private}},
		RootCAs:      pool, ServerName: serverName,
		ClientCAs: pool, ClientAuth: tls.RequireAndVerifyClientCert,
	}, nil
}
