package mcpauth

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
)

// The types of tokens, RFC 8693 §3 and the drafts of the identity assertion grant.
const (
	typeAccessToken = "urn:ietf:params:oauth:token-type:access_token" //nolint:gosec // the name of a kind
	typeIDToken     = "urn:ietf:params:oauth:token-type:id_token"     //nolint:gosec // the same
	typeIDJAG       = "urn:ietf:params:oauth:token-type:id-jag"
)

// exchangeForm is a token exchange request (RFC 8693 §2.1) without what says who the client is
// and for which resource. requestedType and audience may be empty.
func exchangeForm(subject, subjectType, requestedType, audience string, scopes []string) url.Values {
	form := url.Values{
		"grant_type":         {GrantExchange},
		"subject_token":      {subject},
		"subject_token_type": {subjectType},
	}
	for name, value := range map[string]string{
		"requested_token_type": requestedType, "audience": audience, "scope": strings.Join(scopes, " "),
	} {
		if value != "" {
			form.Set(name, value)
		}
	}
	return form
}

// idJAG gives the user's ID token to the enterprise's identity provider for an authorization grant:
// a JWT that the authorization server with the issuer takes for a token for the resource.
func (c *Client) idJAG(ctx context.Context, e *Enterprise, issuer, resource string, scopes []string) (string, error) {
	if e.IDToken == nil {
		return "", errors.New("mcpauth: Options.Enterprise has no IDToken")
	}
	token, err := e.IDToken(ctx)
	if err != nil {
		return "", fmt.Errorf("mcpauth: there is no ID token: %w", err)
	}
	endpoint := e.TokenURL
	if endpoint == "" {
		// The operator has named the issuer: no server has led here.
		idp, err := c.discover(ctx, nil, e.Issuer)
		if err != nil {
			return "", fmt.Errorf("mcpauth: the identity provider was not found: %w", err)
		}
		endpoint = idp.TokenEndpoint
	}
	form := exchangeForm(token, typeIDToken, typeIDJAG, issuer, scopes)
	form.Set("resource", resource)
	header := http.Header{}
	switch {
	case e.ClientID != "" && e.ClientSecret != "":
		// RFC 6749 §2.3.1: both parts are encoded as in a form first.
		header.Set("Authorization", basic(e.ClientID, e.ClientSecret))
	case e.ClientID != "":
		form.Set("client_id", e.ClientID)
	}
	answer, err := c.post(ctx, nil, endpoint, header, form)
	if err != nil {
		return "", fmt.Errorf("mcpauth: the identity provider gives no authorization grant: %w", err)
	}
	switch {
	case answer.IssuedTokenType != typeIDJAG:
		return "", errors.New("mcpauth: the identity provider has not issued an authorization grant (ID-JAG), but another token")
	case !strings.EqualFold(answer.TokenType, "N_A"): // RFC 8693 §2.2.1: it is no access token
		return "", errors.New("mcpauth: the identity provider's authorization grant has another token_type than N_A")
	case answer.AccessToken == "":
		return "", errors.New("mcpauth: the identity provider's answer has no authorization grant")
	}
	return answer.AccessToken, nil
}
