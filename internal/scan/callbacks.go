package scan

// Object is Members with a callback, until yield returns false.
func Object(b []byte, yield func(key, value []byte) bool) { members(b, false, yield) }

// Array is Elements with a callback, until yield returns false.
func Array(b []byte, yield func(value []byte) bool) { elements(b, yield) }
