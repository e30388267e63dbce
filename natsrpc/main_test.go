package natsrpc_test

import (
	"os"
	"testing"

	"github.com/farcall-dev/farcall/internal/leak"
)

func TestMain(m *testing.M) { os.Exit(leak.Main(m)) }
