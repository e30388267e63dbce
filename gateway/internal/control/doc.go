// Package control answers one question: what can an operator read and change of a gateway over
// HTTP?
//
// A [Handler] serves the routes of one table below /api/v1, and an OpenAPI document that is made of
// the same table. It knows HTTP: which origins and hosts may send a request, media types, bodies,
// and the answers of RFC 9457. What happens is up to its [Backend], and who may do it, and what is
// written down of that, up to its [Access].
//
// GET reads. POST and PUT change something, and a request that does has a JSON body or at least its
// media type: a form of a web page cannot have it. No page of another origin gets in, whatever
// origins may call the gateway otherwise.
package control
