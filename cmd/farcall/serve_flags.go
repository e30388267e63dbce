package main

import (
	"fmt"
	"strconv"
	"strings"
)

// defaultAddress is where farcall listens when it is not told where.
const defaultAddress = "127.0.0.1:7331"

// byteSize is a flag such as 10MB, 512KiB or 1048576.
type byteSize int

// memorySize is one of the memory of a process.
type memorySize int64

const (
	maxByteSize   = 1 << 30
	maxMemorySize = 1 << 40
)

// Set implements pflag.Value.
func (s *byteSize) Set(text string) error {
	n, err := sizeUpTo(text, maxByteSize, "1GiB")
	if err == nil {
		*s = byteSize(n)
	}
	return err
}

// Set implements pflag.Value.
func (s *memorySize) Set(text string) error {
	n, err := sizeUpTo(text, maxMemorySize, "1TiB")
	if err == nil {
		*s = memorySize(n)
	}
	return err
}

// String implements pflag.Value.
func (s *memorySize) String() string {
	if *s == 0 {
		return ""
	}
	return strconv.FormatInt(int64(*s), 10)
}

// Type implements pflag.Value.
func (s *memorySize) Type() string { return "size" }

// sizeUpTo reads a size of 1 byte to most, which is written as bound.
func sizeUpTo(text string, most float64, bound string) (int64, error) {
	number, unit := strings.ToLower(strings.TrimSpace(text)), 1.0
	for _, u := range []struct {
		suffix string
		bytes  float64
	}{
		// The longer suffixes first: most of them end in "b".
		{"kib", 1 << 10},
		{"mib", 1 << 20},
		{"gib", 1 << 30},
		{"kb", 1e3},
		{"mb", 1e6},
		{"gb", 1e9},
		{"k", 1 << 10},
		{"m", 1 << 20},
		{"g", 1 << 30},
		{"b", 1},
	} {
		if head, ok := strings.CutSuffix(number, u.suffix); ok {
			number, unit = strings.TrimSpace(head), u.bytes
			break
		}
	}
	n, err := strconv.ParseFloat(number, 64)
	if err != nil {
		return 0, fmt.Errorf("%q is not a size; write 10MB, 512KiB or a number of bytes", text)
	}
	if n *= unit; !(n >= 1 && n <= most) {
		return 0, fmt.Errorf("%q is out of range; sizes go from 1 byte to %s", text, bound)
	}
	return int64(n), nil
}

// String implements pflag.Value.
func (s *byteSize) String() string {
	if *s == 0 {
		return ""
	}
	return strconv.Itoa(int(*s))
}

// Type implements pflag.Value.
func (s *byteSize) Type() string { return "size" }
