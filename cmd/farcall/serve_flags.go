package main

import (
	"fmt"
	"strconv"

	"github.com/farcall-dev/farcall/internal/size"
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
func sizeUpTo(text string, most int64, bound string) (int64, error) {
	n, ok := size.Parse(text, 1, most)
	if !ok {
		return 0, fmt.Errorf("%q is not a size, or out of range; "+
			"write 10MB, 512KiB or a number of bytes, up to %s", text, bound)
	}
	return n, nil
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
