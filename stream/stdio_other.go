//go:build !unix

package stream

import "os"

func standardFiles() (in, out *os.File) { return os.Stdin, os.Stdout }
