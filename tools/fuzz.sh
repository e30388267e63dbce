#!/usr/bin/env bash
# Runs each fuzz target of the main module for a while: tools/fuzz.sh [TIME], 10s when not given.
set -euo pipefail
cd "$(dirname "$0")/.."
time=${1:-10s}
log=$(mktemp)
trap 'rm -f "$log"' EXIT
passed=0 failed=0

for package in $(go list -f '{{if or .TestGoFiles .XTestGoFiles}}{{.ImportPath}}{{end}}' ./...); do
	for target in $(go test -list '^Fuzz' "$package" | grep '^Fuzz' || true); do
		if go test -run '^$' -fuzz "^$target\$" -fuzztime "$time" "$package" >"$log" 2>&1; then
			verdict=ok passed=$((passed + 1))
		elif grep -qx '    context deadline exceeded' "$log" && ! grep -q 'Failing input' "$log"; then
			# The end of -fuzztime, reported as a failure by mistake (golang/go#75804, in Go up to 1.26). A real
			# finding always writes its input.
			verdict='ok (time was up)' passed=$((passed + 1))
		else
			verdict=FAILED failed=$((failed + 1))
		fi
		printf '%-60s %s\n' ".${package#github.com/farcall-dev/farcall} $target" "$verdict"
		if [ "$verdict" = FAILED ]; then
			cat "$log"
		else
			grep '^fuzz: elapsed' "$log" | tail -n 1 | sed 's/^/  /'
		fi
	done
done

echo "fuzz: $passed passed, $failed failed"
[ "$failed" = 0 ] && [ "$passed" != 0 ]
