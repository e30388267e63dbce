// Package pin answers one question: is this tool still what somebody has looked
// at and accepted?
//
// What a tool says about itself is read by models, and obeyed. A Lock holds the
// definitions that were accepted; a tool that differs from its own is not
// allowed until somebody accepts it, and what differs can be shown.
package pin
