// Package mock answers one question: how did the server of a capture answer this request? It
// plays the server's part of a capture.
package mock
