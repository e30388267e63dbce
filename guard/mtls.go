package guard

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"slices"
)

// compileMTLS checks the entries of client certificates and reads their authorities.
func (c *Config) compileMTLS(s *state, f *finder) {
	s.authorities = make([][]*x509.Certificate, len(c.MTLS))
	for i, m := range c.MTLS {
		path := fmt.Sprintf("mtls[%d]", i)
		if m.SAN == "" {
			f.bad(path+".san", "it is empty", "write a name such as spiffe://example.org/agent/* or *.example.org")
		}
		if m.CA == "" {
			if slices.ContainsFunc(c.MTLS, func(other Certificate) bool { return other.CA != "" }) {
				f.warn(path+".ca", "it is missing: every authority of the listener may sign for "+m.SAN+", those of other entries included", "name the authority of this entry")
			}
			continue
		}
		var err error
		if s.authorities[i], err = readAuthorities(m.CA); err != nil {
			f.bad(path+".ca", err.Error(), "name a file with certificates in PEM")
		}
	}
}

// readAuthorities reads certificates in PEM.
func readAuthorities(text string) (list []*x509.Certificate, err error) {
	rest := []byte(text)
	for {
		var block *pem.Block
		if block, rest = pem.Decode(rest); block == nil {
			break
		}
		if block.Type != "CERTIFICATE" {
			continue
		}
		cert, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, fmt.Errorf("it has a certificate that cannot be read: %w", err)
		}
		list = append(list, cert)
	}
	if len(list) == 0 {
		return nil, errors.New("there is no certificate in PEM")
	}
	return list, nil
}

// signedFor reports whether a chain that the listener has checked leads to an authority of an
// entry. Without authorities the listener's are good for it. The certificate of the client itself
// is none of them.
func (s *state) signedFor(entry int, c *tls.ConnectionState) bool {
	if s.authorities[entry] == nil {
		return true
	}
	for _, chain := range c.VerifiedChains {
		for _, above := range chain[1:] {
			if slices.ContainsFunc(s.authorities[entry], above.Equal) {
				return true
			}
		}
	}
	return false
}
