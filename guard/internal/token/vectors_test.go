package token

import (
	"strings"
	"testing"
	"time"
)

const (
	joe = "eyJpc3MiOiJqb2UiLA0KICJleHAiOjEzMDA4MTkzODAsDQogImh0dHA6Ly9leGFtcGxlLmNvbS9pc19yb290Ijp0c" +
		"nVlfQ"
	// RFC 7515 A.1.1
	rfc7515A1 = "eyJ0eXAiOiJKV1QiLA0KICJhbGciOiJIUzI1NiJ9." + joe +
		".dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk"
	rfc7515A1Key = `{"kty":"oct",` +
		`"k":"AyM1SysPpbyDfgZld3umj1qzKObwVMkoqQ-EstJQLr_T-1qS0gZH75aKtMN3Yj0iPS4hcgUuTwjAzZr1Z9CAow"}`
	// RFC 7515 A.2.1
	rfc7515A2 = "eyJhbGciOiJSUzI1NiJ9." + joe +
		".cC4hiUPoj9Eetdgtv3hF80EGrhuB__dzERat0XF9g2VtQgr9PJbu3XOiZj5RZmh7" +
		"AAuHIm4Bh-0Qc_lF5YKt_O8W2Fp5jujGbds9uJdbF9CUAr7t1dnZcAcQjbKBYNX4BAynRFdiuB--f_nZLgrnbyTyWzO75v" +
		"RK5h6xBArLIARNPvkSjtQB" +
		"MHlb1L07Qe7K0GarZRmB_eSN9383LcOLn6_dO--xi12jzDwusC-eOkHWEsqtFZESc6BfI7noOPqvhJ1phCnvWh6IeYI2w9" +
		"QOYEUipUTI8np6LbgGY9Fs" +
		"98rqVt5AXLIhWkWywlVmtVrBp0igcN_IoypGlUPQGe77Rw"
	rfc7515A2Key = `{"kty":"RSA",` +
		`"n":"ofgWCuLjybRlzo0tZWJjNiuSfb4p4fAkd_wWJcyQoTbji9k0l8W26mPddxHmfHQp-Vaw-4qPCJrcS2mJPMEzP1Pt0` +
		`Bm4d4QlL` +
		`-yRT-SFd2lZS-pCgNMsD1W_YpRPEwOWvG6b32690r2jZ47soMZo9wGzjb_7OMg0LOL-bSf63kpaSHSXndS5z5rexMdbBYU` +
		`sLA9e-KXBdQOS-UTo7WTBEMa2R2` +
		`CapHg665xsmtdVMTBQY4uDZlxvb3qCo5ZwKh9kG4LT6_I5IhlJH7aGhyxXFvUK-DWNmoudF8NAco9_h9iaGNj8q2ethFkM` +
		`Ls91kzk2PAcDTW9gb54h4FRWyuX` +
		`poQ","e":"AQAB"}`
	// RFC 7515 A.3.1
	rfc7515A3 = "eyJhbGciOiJFUzI1NiJ9." + joe +
		".DtEhU3ljbEg8L38VWAfUAqOyKAM6-Xx-F4GawxaepmXFCgfTjDxw5djxLa8ISlSApmWQxfKTUJqPP3-Kg6NU1Q"
	rfc7515A3Key = `{"kty":"EC","crv":"P-256","x":"f83OJ3D2xF1Bg8vub9tLe1gHMzV76e8Tus9uPHvRVEU",` +
		`"y":"x_FEzRu9m36HLN_tue659LNpXW6pCyStikYjKIWI5a0"}`
	// RFC 7515 A.4.1
	rfc7515A4 = "eyJhbGciOiJFUzUxMiJ9.UGF5bG9hZA.AdwMgeerwtHoh-l192l60hp9wAHZFVJbLfD_UxMi70cwnZOYaRI" +
		"1bKPWROc-mZZqwqT2SI-KGDKB34XO0aw_7" +
		"XdtAG8GaSwFKdCAPZgoXD2YBJZCPEX3xKpRwcdOO8KpEHwJjyqOgzDO7iKvU8vcnwNrmxYbSW9ERBXukOXolLzeO_Jn"
	rfc7515A4Key = `{"kty":"EC","crv":"P-521",` +
		`"x":"AekpBQ8ST8a8VcfVOTNl353vSrDCLLJXmPk06wTjxrrjcBpXp5EOnYG_NjFZ6OvLFV1jSfS9tsz4qUxcWceqwQG` +
		`k",` +
		`"y":"ADSmRA43Z1DSNx_RvcLI87cdL07l6jQyyBXMoxVg_l2Th-x3S1WDhjDly79ajL4Kkd0AZMaZmh9ubmf63e3kyMj2"}`
	// RFC 7515 A.5
	rfc7515A5 = "eyJhbGciOiJub25lIn0." + joe + "."
	// RFC 8037 A.2, A.3, A.4
	rfc8037Key = `{"kty":"OKP","crv":"Ed25519",` +
		`"x":"11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"}`
	rfc8037Thumbprint = "kPrK_qmxVWaYVA9wwBF6Iuo3vVzz7TxHCTwXBygrS4k"
	rfc8037A4         = "eyJhbGciOiJFZERTQSJ9.RXhhbXBsZSBvZiBFZDI1NTE5IHNpZ25pbmc." +
		"hgyY0il_MGCjP0JzlnLWG1PPOt7-09PGcvMg3AIbQR6dWbhijcNR4ki4iylGjg5BhVsPt9g7sVvpAr_MuM0KAg"
	// RFC 7638 §3.1
	rfc7638Key = `{"kty":"RSA",` +
		`"n":"0vx7agoebGcQSuuPiLJXZptN9nndrQmbXEps2aiAFbWhM78LhWx4cbbfAAtVT86zwu1RK7aPFFxuhDR1L6tSoc_BJ` +
		`ECPebWKRX` +
		`jBZCiFV4n3oknjhMstn64tZ_2W-5JsGY4Hc5n9yBXArwl93lqt7_RN5w6Cf0h4QyQ5v-65YGjQR0_FDW2QvzqY368QQMic` +
		`AtaSqzs8KJZgnYb9c7d0zgdAZHz` +
		`u6qMQvRL5hajrn1n91CbOpbISD08qNLyrdkt-bFTWhAI4vMQFh6WeZu0fM4lFd2NcRwr3XPksINHaQ-G_xBniIqbw0Ls1j` +
		`F44-csFCur-kEgU8awapJzKnqDK` +
		`gw","e":"AQAB","alg":"RS256","kid":"2011-04-29"}`
	rfc7638Thumbprint = "NzbLsXh8uDCcd-6MNwXF4W_7noWXFZAfHkxZsRGC9Xs"
	// RFC 9449 §4.1 (figure 2, with the content in figure 4), §6.1 and §7.1 (figures 12 and 13)
	rfc9449Key = "eyJ0eXAiOiJkcG9wK2p3dCIsImFsZyI6IkVTMjU2IiwiandrIjp7Imt0eSI6IkVDIiwieCI6Imw4dEZyaH" +
		"gtMzR0VjNoUklDUkRZOXpDa0RscEJoRjQyVVFVZldWQVdCR" +
		"nMiLCJ5IjoiOVZFNGpmX09rX282NHpiVFRsY3VOSmFqSG10NnY5VERWclUwQ2R2R1JEQSIsImNydiI6IlAtMjU2In19"
	rfc9449Token = rfc9449Key +
		".eyJqdGkiOiItQndDM0VTYzZhY2MybFRjIiwiaHRtIjoiUE9TVCIsImh0dSI6Imh0dHBzOi8vc2VydmVyLmV4YW1wbGUuY" +
		"29tL3Rva2VuIiwia" +
		"WF0IjoxNTYyMjYyNjE2fQ.2-GxA6T8lP4vfrg8v-FdWP0A0zdrj8igiMLvqRMUvwnQg4PtFLbdLXiOSsX0x7NVY-FNyJK7" +
		"0nfbV37xRZT3Lg"
	rfc9449Resource = rfc9449Key +
		".eyJqdGkiOiJlMWozVl9iS2ljOC1MQUVCIiwiaHRtIjoiR0VUIiwiaHR1IjoiaHR0cHM6Ly9yZXNvdXJjZS5leGFtcGxlL" +
		"m9yZy9wcm90ZWN0Z" +
		"WRyZXNvdXJjZSIsImlhdCI6MTU2MjI2MjYxOCwiYXRoIjoiZlVIeU8ycjJaM0RaNTNFc05yV0JiMHhXWG9hTnk1OUlpS0N" +
		"BcWtzbVFFbyJ9.2oW9RP35yRqzhrtNP86L-Ey71E" +
		"OptxRimPPToA1plemAgR6pxHF8y6-yqyVnmcw6Fy1dqd-jfxSYoMxhAJpLjA"
	rfc9449Access     = "Kz~8mXK1EalYznwH-LC-1fBAo.4Ljp~zsPE_NeO.gxU"
	rfc9449Thumbprint = "0ZcOCORZNYy-DWpqq30jZyJGHTN0d2HglBV3uiguA4I"
	rfc9449ATH        = "fUHyO2r2Z3DZ53EsNrWBb0xWXoaNy59IiKCAqksmQEo"
)

func vectorKey(t *testing.T, jwk string) *key {
	t.Helper()
	m, err := readObject([]byte(jwk))
	if err != nil {
		t.Fatal(err)
	}
	k, err := readKey(m)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

// The examples of RFC 7515 A.2 to A.4 and RFC 8037 A.4, the latter two with a payload that is no
// JSON.
func TestVectorsOfSignatures(t *testing.T) {
	for name, test := range map[string]struct{ raw, jwk, alg string }{
		"RFC 7515 A.2 RS256": {rfc7515A2, rfc7515A2Key, "RS256"},
		"RFC 7515 A.3 ES256": {rfc7515A3, rfc7515A3Key, "ES256"},
		"RFC 7515 A.4 ES512": {rfc7515A4, rfc7515A4Key, "ES512"},
		"RFC 8037 A.4 EdDSA": {rfc8037A4, rfc8037Key, "EdDSA"},
	} {
		t.Run(name, func(t *testing.T) {
			k := vectorKey(t, test.jwk)
			signature, err := decode(test.raw[strings.LastIndexByte(test.raw, '.')+1:])
			if err != nil {
				t.Fatal(err)
			}
			p := &parsed{raw: test.raw, alg: test.alg, signature: signature}
			if err := k.verify(p); err != nil {
				t.Error(err)
			}
			for i := 0; i < len(signature); i += 16 {
				signature[i] ^= 1
				if k.verify(p) == nil {
					t.Errorf("with byte %d of the signature changed it verifies", i)
				}
				signature[i] ^= 1
			}
			p.raw = "f" + p.raw[1:]
			if k.verify(p) == nil {
				t.Error("with other bytes it verifies")
			}
		})
	}
	for _, raw := range []string{rfc7515A2, rfc7515A3} {
		p, err := parse(raw)
		if err != nil || p.claims["iss"] != "joe" || p.claims["http://example.com/is_root"] != true ||
			p.claims["exp"] != 1300819380.0 {
			t.Errorf("RFC 7515 A.2, A.3: %v, %v", p, err)
		}
	}
}

// RFC 7515 A.1 is HMAC and A.5 is none: they are refused for that, whatever key there is.
func TestVectorsOfRefusedAlgorithms(t *testing.T) {
	v, err := New(
		[]Issuer{{Issuer: "joe", JWKS: `{"keys":[` + rfc7515A1Key + "," + rfc7515A2Key + `]}`, Audience: []string{"a"}}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, raw := range []string{rfc7515A1, rfc7515A5} {
		_, err := v.Verify(t.Context(), raw)
		refused(t, err, "algorithm", raw)
	}
	// The right signature and keys do not help a token that ended in 2011.
	_, err = v.Verify(t.Context(), rfc7515A2)
	refused(t, err, "expired", rfc7515A2)
}

// RFC 7638 §3.1, RFC 8037 A.3, RFC 9449 §6.1.
func TestVectorsOfThumbprints(t *testing.T) {
	for jwk, want := range map[string]string{
		rfc7638Key: rfc7638Thumbprint,
		rfc8037Key: rfc8037Thumbprint,
		`{"kty":"EC","x":"l8tFrhx-34tV3hRICRDY9zCkDlpBhF42UQUfWVAWBFs",` +
			`"y":"9VE4jf_Ok_o64zbTTlcuNJajHmt6v9TDVrU0CdvGRDA","crv":"P-256"}`: rfc9449Thumbprint,
	} {
		if got := vectorKey(t, jwk).thumbprint; got != want {
			t.Errorf("%s: %s, want %s", jwk, got, want)
		}
	}
}

// RFC 9449 §4.1 and §7.1.
func TestVectorsOfProofs(t *testing.T) {
	p, err := ReadProof(rfc9449Token, "POST", "https://server.example.com/token", "")
	if want := (Proof{
		Thumbprint: rfc9449Thumbprint, ID: "-BwC3ESc6acc2lTc",
		Issued: time.Unix(1562262616, 0),
	}); err != nil || *p != want {
		t.Errorf("%+v, %v", p, err)
	}
	if got := sum(rfc9449Access); got != rfc9449ATH {
		t.Errorf("ath is %s", got)
	}
	p, err = ReadProof(rfc9449Resource, "GET", "https://resource.example.org/protectedresource",
		rfc9449Access)
	if want := (Proof{
		Thumbprint: rfc9449Thumbprint, ID: "e1j3V_bKic8-LAEB",
		Issued: time.Unix(1562262618, 0),
	}); err != nil || *p != want {
		t.Errorf("%+v, %v", p, err)
	}
	_, err = ReadProof(rfc9449Resource, "GET", "https://resource.example.org/protectedresource",
		rfc9449Access+"x")
	refused(t, err, "claims", rfc9449Resource)
	_, err = ReadProof(rfc9449Token, "GET", "https://server.example.com/token", "")
	refused(t, err, "claims", rfc9449Token)
}
