// Package guard answers one question: may this call proceed?
//
// A Guard finds out who calls (a [Principal]), decides by policy what it may call,
// bounds how much, and writes down each decision. It fails closed: a credential that
// is not valid is an error and never becomes a call without one, and once there
// is a policy, what no rule allows is denied.
//
//	g, err := guard.New(&guard.Config{
//		Keys:  []guard.Key{{ID: "ci", Hash: "sha256:…", Roles: []string{"builder"}}},
//		Allow: []guard.Rule{{Roles: []string{"builder"}, Calls: []string{"math/*", "tools/call build_*"}}},
//	}, nil)
//	o := &farcall.Options{Interceptors: []farcall.Interceptor{g.Interceptor(nil)}}
//	http.Handle("/rpc", g.HTTP(httprpc.NewHandler(mux, &httprpc.Options{RPC: o})))
//
// # Who calls
//
// Over HTTP, and so for a WebSocket by its handshake, [Guard.HTTP] reads the credentials: an API
// key, a bearer token (JWT), with a DPoP proof where it is bound to a key, a client certificate, a
// signature of the request (RFC 9421). Over any other transport it is what [Conn] knows of the
// connection: its certificate, a token, the trust in a process. On every transport a message may be
// signed on its own: see [SignParams].
//
// # What it may call
//
// Rules allow and deny by principal, role and name; Cedar policies say whatever
// rules cannot. Both are one engine. What a client needs to begin and to
// look around (initialize, ping, server/discover, lists) is open to everybody who is let in; lists
// show what the caller may use.
package guard
