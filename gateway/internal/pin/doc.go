// Package pin answers one question: is this still what was accepted?
//
// What a server says about itself, its tools, prompts and resources is read by models, and
// obeyed. A Lock holds the definitions that were accepted; what differs from its own is not
// allowed until it is accepted again, and what differs can be shown.
package pin
