// Package signin answers one question: who has signed in to which upstream, and with which tokens?
//
// A [Store] keeps the tokens, sealed, in one record for each owner and upstream. A [Service] lets
// principals sign in with their browsers, and an [Upstream] adds their tokens to requests.
package signin
