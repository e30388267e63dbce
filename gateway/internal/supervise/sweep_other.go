//go:build !linux

package supervise

// sweep cannot look into the environment of others here.
func sweep(string) int { return 0 }
