package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// writeFormula writes the Homebrew formula, which installs the archives of this release.
func (r *release) writeFormula() error {
	source := func(system, arch string) string {
		name := fmt.Sprintf("farcall-%s-%s-%s.tar.gz", r.version, system, arch)
		return fmt.Sprintf("      url %q\n      sha256 %q\n",
			home+"/releases/download/"+r.version+"/"+name, r.sums[name])
	}
	var b strings.Builder
	fmt.Fprintf(&b, `class Farcall < Formula
  desc "MCP and JSON-RPC 2.0: a gateway, a client and a server in one binary"
  homepage %q
  version %q
  license "MIT"

`, home, strings.TrimPrefix(r.version, "v"))
	for _, on := range [][2]string{{"darwin", "macos"}, {"linux", "linux"}} {
		fmt.Fprintf(&b, "  on_%s do\n    on_arm do\n%s    end\n    on_intel do\n%s    end\n  end\n\n",
			on[1], source(on[0], "arm64"), source(on[0], "amd64"))
	}
	b.WriteString(`  def install
    bin.install "farcall"
    man1.install Dir["man/man1/*.1"]
    bash_completion.install "completions/farcall.bash" => "farcall"
    zsh_completion.install "completions/_farcall"
    fish_completion.install "completions/farcall.fish"
  end

  test do
    assert_match version.to_s, shell_output("#{bin}/farcall version")
  end
end
`)
	return os.WriteFile(filepath.Join(r.dir, "farcall.rb"), []byte(b.String()), 0o644)
}
