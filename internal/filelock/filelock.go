// Package filelock answers one question: does another process use this file?
package filelock
