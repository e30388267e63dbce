package stack

import (
	"strconv"
	"testing"
)

func TestGrow(t *testing.T) {
	t.Parallel()
	for n := range 256 {
		if got := Grow(uint8(n)); got != 0 {
			t.Errorf("Grow(%d) = %d", n, got)
		}
	}
}

// deep calls itself, as a call passes through layers, and needs 8 KB.
func deep(n int) string {
	if n == 0 {
		return strconv.FormatFloat(1.5, 'g', -1, 64)
	}
	var frame [256]byte
	frame[n] = 1
	return deep(n-1) + string(frame[n+1:n+1])
}

// BenchmarkGoroutine is a goroutine for a call, without and with Grow.
func BenchmarkGoroutine(b *testing.B) {
	done := make(chan string)
	for _, grow := range []bool{false, true} {
		b.Run(strconv.FormatBool(grow), func(b *testing.B) {
			for b.Loop() {
				go func() {
					if grow {
						_ = Grow(0)
					}
					done <- deep(20)
				}()
				<-done
			}
		})
	}
}
