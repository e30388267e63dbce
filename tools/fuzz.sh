#!/usr/bin/env bash
# Runs each fuzz target of the main module for a while: tools/fuzz.sh [TIME], 10s when not given. As many run at once
# as there are processors, each with one worker. tools/fuzz.sh SECONDS REVISION runs those of packages that have changed
# since that revision, SECONDS for all of them together; without that revision (in a shallow clone), all. No coverage
# guides there: what measures it would be compiled first, for much longer than SECONDS.
set -euo pipefail
cd "$(dirname "$0")/.."
time=${1:-10s}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# run DIRECTORY BINARY TARGET: runs one target and prints its verdict.
run() {
	local directory=$1 binary=$2 target=$3 log="$2.$3" verdict
	cd "$directory"
	# An input that reaches new code is made smaller by 100 attempts; the default of 60 s would leave no time.
	if "$binary" -test.run '^$' -test.fuzz "^$target\$" -test.fuzztime "$time" -test.fuzzminimizetime 100x -test.parallel 1 \
		-test.fuzzcachedir "$work/cache/$target" >"$log" 2>&1; then
		verdict=ok
	elif grep -qx '    context deadline exceeded' "$log" && ! grep -q 'Failing input' "$log"; then
		# The end of -fuzztime, reported as a failure by mistake (golang/go#75804, in Go up to 1.26). A real finding
		# always writes its input.
		verdict='ok (time was up)'
	else
		verdict=FAILED
		touch "$work/failed"
	fi
	{
		printf '%-60s %s\n' ".${directory#"$root"} $target" "$verdict"
		if [ "$verdict" = FAILED ]; then
			cat "$log"
		else
			grep '^fuzz: elapsed' "$log" | tail -n 1 | sed 's/^/  /'
		fi
	} >"$log.verdict"
	cat "$log.verdict" # at once, so that another's does not come in between
}
root=$PWD
since=${2:-}
# changed DIRECTORY: reports whether a Go file there, or its testdata, has changed.
changed() {
	[ -z "$since" ] || ! git rev-parse -q --verify "$since^{commit}" >/dev/null ||
		! git diff --quiet "$since" -- "$1"/*.go "$1/testdata"
}
# compile BINARY DIRECTORY: builds a test. Without a revision it measures coverage for the fuzzer.
compile() {
	local guided=(-fuzz Fuzz)
	[ -z "$since" ] || guided=()
	go test -vet=off -c -ldflags="-s -w" "${guided[@]}" -o "$1" "$2"
}
export -f run
export time work root

go list -f '{{if or .TestGoFiles .XTestGoFiles}}{{.Dir}}{{end}}' ./... | while read -r directory; do
	grep -qs '^func Fuzz' "$directory"/*_test.go && changed "$directory" || continue
	binary=$work/test$(tr / . <<<"${directory#"$root"}")
	compile "$binary" "$directory"
	(cd "$directory" && "$binary" -test.list '^Fuzz') | sed "s|^|$directory $binary |"
done >"$work/targets"
targets=$(wc -l <"$work/targets")
if [ -n "$since" ]; then
	[ "$targets" -gt 0 ] || { echo "fuzz: no package with a target has changed since $since"; exit 0; }
	time=$((1 + time * $(nproc) / targets))s
	echo "fuzz: $targets targets of packages that have changed since $since, $time each"
fi
xargs -P "$(nproc)" -L 1 bash -c 'run "$0" "$1" "$2"' <"$work/targets"

echo "fuzz: $targets targets"
[ "$targets" -gt 0 ] && [ ! -e "$work/failed" ]
