//go:build !race

package farcall_test

const raceEnabled = false
