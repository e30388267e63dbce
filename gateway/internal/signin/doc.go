// Package signin answers one question: who has signed in to which upstream, and with which tokens?
//
// A [Store] keeps the tokens, sealed, in one record for each owner and upstream.
package signin
