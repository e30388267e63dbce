package size

import "testing"

func TestParse(t *testing.T) {
	for text, want := range map[string]int64{
		"1": 1, "1048576": 1 << 20, "10MB": 10_000_000, "512KiB": 512 << 10, " 2 gib ": 2 << 30,
		"1.5k": 1536, "7b": 7, "3M": 3 << 20, "1e3": 1000,
	} {
		if got, ok := Parse(text, 1, 4<<30); !ok || got != want {
			t.Errorf("%q: %d, %v; want %d", text, got, ok, want)
		}
	}
	for _, text := range []string{
		"", "MB", "x", "-1", "0", "0.5", "nan", "inf", "5GiB", "1TB", "1 0", "10MBit",
	} {
		if got, ok := Parse(text, 1, 4<<30); ok {
			t.Errorf("%q: %d", text, got)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add("10MB")
	f.Add("1e400gib")
	f.Fuzz(func(t *testing.T, text string) {
		if n, ok := Parse(text, 5, 1<<40); ok && (n < 5 || n > 1<<40) {
			t.Errorf("%q: %d", text, n)
		}
	})
}
