// Package tap answers one question: what passes between a client and a server? It forwards bytes
// unchanged, and gives the frames among them to a recorder.
package tap
