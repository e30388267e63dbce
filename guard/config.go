package guard

import "time"

// A Config says who may call what, and how much. The zero value of a field is its
// default. It must not change while a Guard uses it.
type Config struct {
	// Anonymous lets calls without credentials in, as the principal "anonymous" of
	// that kind and role. Default: they are refused, but on a Conn that Stdio or Local
	// trusts.
	Anonymous bool
	// Keys are API keys: Authorization: Bearer KEY, or X-API-Key: KEY.
	Keys []Key
	// JWT are the issuers with tokens that count.
	JWT []Issuer
	// MTLS says which client certificates count. The TLS listener checks their chain.
	MTLS []Certificate
	// Signatures are the keys of requests that are signed (RFC 9421) and of messages
	// that are: see [SignRequest] and [SignParams].
	Signatures []Signer
	// Stdio is who calls over standard input and output.
	Stdio struct {
		// Trust takes anyone who started the process for the principal ID, "local" by default,
		// with Roles. Default: true, when TokenEnv is "".
		Trust *bool
		ID    string
		Roles []string
		// TokenEnv is a variable of the environment that must have a key or a token.
		TokenEnv string
	}
	// Locks refuse callers with credentials that are still valid. LocksFile is a file with more of
	// them, one JSON object on each line, which is read again within a second of a change.
	Locks     []Lock
	LocksFile string
	// Resource makes an OAuth resource server of it (RFC 9728).
	Resource struct {
		// URL is how clients know this server: the audience of tokens (RFC 8707).
		URL string
		// Servers are the authorization servers; the issuers of JWT by default.
		Servers []string
		// Scopes are what calls also need: patterns of calls as in Rule, and the
		// scopes for each.
		Scopes map[string][]string
	}
	// Replay is about signatures and DPoP proofs.
	Replay struct {
		// Window is how old a signed request may be, and Future how far ahead its clock: 5 min and 30 s
		// by default.
		Window, Future time.Duration
		// Memory bounds the nonces that are remembered, 1,000,000 by default, or 200,000 with
		// Options.Shared. One key alone gets three quarters of it, and leaves as much of the rest to the
		// next: its further requests are refused until some expire. What a rate refuses is not
		// remembered.
		Memory int
	}

	// Mode "shadow" takes the whole guard on trial: calls that policies, scopes, schemas, bounds of
	// params or limits would refuse pass. They are counted, logged, and in the audit as "would deny"
	// and "would limit". Authentication is enforced as ever. Mode "enforce" is the default.
	Mode string
	// Allow and Deny are rules; Deny counts before Allow. Local are patterns of calls that are for
	// callers on this machine only: stdio, unix sockets, the loopback address.
	Allow, Deny []Rule
	Local       []string
	// Cedar are policies in Cedar's language, and CedarFiles files with them.
	Cedar      string
	CedarFiles []string

	// Params bounds what is in the params of a call.
	Params struct {
		// Schemas says how params are checked against schemas. Parts of a schema that cannot be judged
		// (patterns with lookaround, references to other documents and the like) are left to the server
		// by default; "strict" refuses calls that they are about. "off" checks params against no schema.
		Schemas string
		// MaxString bounds a string in bytes, 10 MB by default; MaxDepth the nesting, 64.
		MaxString, MaxDepth int
		// AllowKeys lets keys through that mean something to JavaScript: __proto__, constructor,
		// prototype.
		AllowKeys bool
	}
	// Limits bounds calls and connections.
	Limits struct {
		// Rates are token buckets; a call must find room in every one that is for it.
		Rates []Rate
		// Refusals bounds the calls of an owner that are refused, and so written: Limit in Every, and
		// Burst at once (Limit by default). Default: 60 a minute, and 1000 at once. Those beyond are
		// answered as limited, and counted.
		Refusals struct {
			Limit int
			Every time.Duration
			Burst int
		}
		// Concurrent bounds the calls of a principal that are under way at once, and Total
		// those of all: when all are taken, anyone who has more than a fair share is refused.
		Concurrent, Total int
		// Connections bounds the connections of one address: 4,096 by default, but not of the loopback
		// address. Accepted bounds those of all, 16,384 by default, and AcceptRate how many are
		// accepted in a second, 1,000 by default; further ones wait. Less than 0: no bound.
		Connections, Accepted, AcceptRate int
		// MaxBody bounds a request over HTTP in bytes, MaxHeader its header. BodyTimeout is how long a
		// body may take, 30 s by default; Idle how long a connection that is no HTTP may be unused, 1 h
		// by default; less than 0: for ever. An open call or subscription is use.
		MaxBody           int64
		MaxHeader         int
		BodyTimeout, Idle time.Duration
	}
	// Audit is where decisions are written.
	Audit struct {
		// File takes JSON lines; "-" is standard error, "" nothing.
		File string
		// Key makes an HMAC of the hash of each line: who has not got it cannot make lines. At least 32
		// bytes. Default: everybody who can write the file can.
		Key string `json:"-"`
		// MaxSize of a file in bytes, 100 MB by default, Keep how many old ones there may be, 100, and
		// KeepFor how long they are kept, 90 days.
		MaxSize int64
		Keep    int
		KeepFor time.Duration
		// OnFull is what happens when there are more files, or the disk is full. "refuse", the default,
		// refuses calls: what may be deleted by calling is no evidence. "rotate" deletes the oldest file.
		OnFull string
		// Params writes the params down, without the values of Redact: names of members, with * and ?.
		// Those of secrets (password, token, secret, authorization, key ...) are redacted always.
		Params bool
		Redact []string
	}
}

// A Key is an API key. Make one with farcall key.
type Key struct {
	ID string // of the principal
	// Hash is "sha256:" and the SHA-256 of the key in hex.
	Hash    string
	Kind    string // "service" by default
	Roles   []string
	Scopes  []string
	Expires time.Time // zero: never
}

// An Issuer issues tokens (JWT).
type Issuer struct {
	// Issuer is the claim iss, and where the keys are found by discovery (OIDC, RFC 8414) unless
	// JWKS names them: a URL, a file, or a set in JSON.
	Issuer string
	JWKS   string
	// Audience is what the claim aud must have one of. Default: Resource.URL.
	Audience []string
	// Algorithms may be used. Default: RS256, PS256, ES256, ES384, EdDSA. HMAC and none never are.
	Algorithms []string
	// Skew is how far clocks may differ, 30 s by default; MaxAge bounds the time since iat, 0 for
	// none.
	Skew, MaxAge time.Duration
	// ID is the claim that names the principal, "sub" by default; Roles that with its
	// roles, "roles" by default. A path has dots: realm_access.roles.
	ID, Roles string
	Kind      string // "user" by default
	// Claims must have these values.
	Claims map[string]string
	// DPoP is "allowed" (the default: a token that is bound to a key needs a proof), "required", or
	// "refused".
	DPoP string
	// Private lets keys be fetched from addresses that are not public.
	Private bool
	// Refresh is how often keys are fetched again, 1 h by default.
	Refresh time.Duration
	// KeysMaxAge is how long keys count that could not be fetched again: 24 h by default, or twice
	// Refresh where that is longer. Afterwards tokens of the issuer are refused until they can.
	KeysMaxAge time.Duration
	// Introspection asks the issuer whether a token is still active (RFC 7662), also one with a
	// signature that is right. What cannot be found out is refused.
	Introspection struct {
		// URL is the endpoint; "" asks nothing.
		URL string
		// ClientID and ClientSecret say who asks: by Auth "basic" (the default), "post", or "bearer",
		// where the secret is its own token.
		ClientID, ClientSecret string `json:"-"`
		Auth                   string
		// Opaque takes tokens that are no JWT for those of this issuer; one issuer can have it.
		Opaque bool
		// AnyAudience takes answers without aud: the endpoint answers for this server only.
		AnyAudience bool
		// TTL is how long an answer is remembered, 30 s by default and never longer than the token is
		// valid; Timeout bounds a request, 5 s by default.
		TTL, Timeout time.Duration
	}
}

// String names the issuer, without its secret.
func (i Issuer) String() string { return "the issuer " + i.Issuer }

// GoString is String: nothing that prints a configuration prints its secrets.
func (i Issuer) GoString() string { return i.String() }

// A Certificate says who a client certificate is.
type Certificate struct {
	// SAN is a pattern with * for a URI (spiffe://…) or DNS name of the certificate.
	SAN string
	// CA are the authorities, in PEM. One must have signed the certificate, directly or
	// through others. It binds a trust domain to its authority. Default: every one that the TLS
	// listener accepts, which has to accept these as well.
	CA    string
	ID    string // of the principal; the name itself by default
	Kind  string // "service" by default
	Roles []string
}

// A Signer is a key for signed requests and messages.
type Signer struct {
	ID string // of the principal, and the keyid
	// Secret is for HMAC-SHA-256, at least 32 bytes; Public for Ed25519, in PEM or base64. One of
	// them.
	Secret string `json:"-"`
	Public string
	Kind   string // "service" by default
	Roles  []string
}

// String names the key, without its secret.
func (s Signer) String() string { return "the key of " + s.ID }

// GoString is String: nothing that prints a configuration prints its secrets.
func (s Signer) GoString() string { return s.String() }

// A Rule allows calls or denies them.
type Rule struct {
	Name string // for audit and explain; its place by default
	// Roles and Principals name the callers that it is for: one of either. Both empty: all callers.
	Roles, Principals []string
	// Calls are patterns with * and ?: "math/*" is a method, "tools/call NAME" a tool,
	// "resources/read URI", "prompts/get NAME"; in a gateway NAME is UPSTREAM/NAME. "*" is everything.
	Calls []string
	// Destructive false keeps tools out that do not say they are harmless: by readOnlyHint, or
	// destructiveHint false.
	Destructive *bool
	// Mode "shadow" takes the rule on trial: a call that is denied because of it passes, and is in the
	// audit as "would deny"; one that it would allow is allowed only if others do. In Cedar's language
	// this is @mode("shadow"). Mode "enforce" is the default.
	Mode string
}

// A Rate is a token bucket.
type Rate struct {
	// Per is what has a bucket: "principal" (the default), "address", "all".
	Per string
	// Calls are patterns as those of a Rule, all by default; Each has a bucket for each call that
	// differs.
	Calls []string
	Each  bool
	Roles []string // for callers with one of these roles; all by default
	// Limit calls fit into Every, and Burst at once (Limit by default). Every of 24 hours is a quota
	// of the day, which begins at midnight UTC.
	Limit int
	Every time.Duration
	Burst int
}
