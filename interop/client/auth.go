package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"strings"

	"github.com/farcall-dev/farcall/mcp/mcpauth"
)

// grants are those of scenarios in which no user takes part.
var grants = map[string]string{
	"auth/client-credentials-jwt":           mcpauth.GrantClient,
	"auth/client-credentials-basic":         mcpauth.GrantClient,
	"auth/wif-jwt-bearer":                   mcpauth.GrantAssertion,
	"auth/enterprise-managed-authorization": mcpauth.GrantEnterprise,
}

// authorization is what a user would have told the client about itself: here it is
// the suite that does, in the context of the scenario.
func authorization(server string) (*mcpauth.Client, error) {
	var given struct {
		ClientID         string `json:"client_id"`
		ClientSecret     string `json:"client_secret"`
		Issuer           string `json:"issuer"`
		Key              string `json:"private_key_pem"`
		Algorithm        string `json:"signing_algorithm"`
		JWT              string `json:"valid_jwt"`
		IDPClientID      string `json:"idp_client_id"`
		IDPIDToken       string `json:"idp_id_token"`
		IDPIssuer        string `json:"idp_issuer"`
		IDPTokenEndpoint string `json:"idp_token_endpoint"`
	}
	if os.Getenv("MCP_CONFORMANCE_CONTEXT") != "" {
		if err := settings(&given); err != nil {
			return nil, err
		}
	}
	return mcpauth.New(server, &mcpauth.Options{
		Name:     "farcall-conformance",
		ClientID: given.ClientID, ClientSecret: given.ClientSecret, Issuer: given.Issuer,
		Key: given.Key, KeyAlgorithm: given.Algorithm,
		MetadataURL: "https://conformance-test.local/client-metadata.json",
		RedirectURL: "http://localhost:3000/callback",
		Grant:       grants[os.Getenv("MCP_CONFORMANCE_SCENARIO")],
		Assertion:   func(context.Context, string) (string, error) { return given.JWT, nil },
		Enterprise: &mcpauth.Enterprise{
			Issuer: given.IDPIssuer, TokenURL: given.IDPTokenEndpoint, ClientID: given.IDPClientID,
			IDToken: func(context.Context) (string, error) { return given.IDPIDToken, nil },
		},
		DPoP:  true,
		Visit: signIn,
	})
}

// signIn is the user with a browser: the suite's authorization server sends it back at
// once.
func signIn(
	ctx context.Context, redirect string, begin func(string) (string, error),
) (*url.URL, error) {
	address, err := begin(redirect)
	if err != nil {
		return nil, err
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, address, http.NoBody)
	if err != nil {
		return nil, err
	}
	browser := &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error {
		return http.ErrUseLastResponse
	}}
	resp, err := browser.Do(r)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	back, err := resp.Location()
	if err != nil {
		return nil, fmt.Errorf("the authorization server answers with %s: %w", resp.Status, err)
	}
	if !strings.HasPrefix(back.String(), redirect) {
		return nil, errors.New("the authorization server redirects elsewhere")
	}
	return back, nil
}
