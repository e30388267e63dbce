package farcall

import (
	"github.com/farcall-dev/farcall/internal/scan"
	"github.com/farcall-dev/farcall/jsonrpc"
)

// member returns the value of a member of an object, or nil.
func member(object jsonrpc.Raw, name string) (value jsonrpc.Raw) {
	scan.Object(object, func(key, v []byte) bool {
		if string(key) == name {
			value = v
			return false
		}
		return true
	})
	return value
}
