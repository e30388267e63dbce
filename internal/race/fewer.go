package race

// Fewer returns how many of n like cases a test tries: n, and with the race detector, which is many
// times slower, a quarter of them.
func Fewer(n int) int {
	if Enabled {
		return max(1, n/4)
	}
	return n
}
