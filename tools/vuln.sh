#!/usr/bin/env bash
# Looks for known vulnerabilities in what the modules call: tools/vuln.sh MODULE-DIRECTORY…
#
# A vulnerability fails. Where govulncheck cannot be built, or its database (GOVULNDB, https://vuln.go.dev by default)
# cannot be reached, nothing is known: the script says so and succeeds, unless VULN=required. GOVULNCHECK names
# another program to run.
set -euo pipefail
cd "$(dirname "$0")/.."

version=v1.9.0
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

unchecked() {
	printf 'vuln: NOT CHECKED for known vulnerabilities: %s\n' "$1" >&2
	sed -e 's/^/vuln:   /' <(tail -n 3 "$work/log") >&2
	[ "${VULN:-}" != required ] || exit 1
	exit 0
}

# Not in tools/go.mod: a module that cannot be fetched there would break all other tools.
program=${GOVULNCHECK:-}
if [ -z "$program" ]; then
	program=$work/govulncheck
	GOBIN=$work go install "golang.org/x/vuln/cmd/govulncheck@$version" >"$work/log" 2>&1 ||
		unchecked "govulncheck $version cannot be built here; it ended with"
elif ! command -v "$program" >"$work/log" 2>&1; then
	unchecked "there is no program $program"
fi

for module in "${@:-.}"; do
	code=0
	"$program" -C "$module" ./... >"$work/log" 2>&1 || code=$?
	case $code in
	0) printf 'vuln: %s: no known vulnerabilities\n' "$module" ;;
	3)
		cat "$work/log"
		printf 'vuln: %s calls code with known vulnerabilities: update the modules above, or the Go toolchain\n' "$module" >&2
		exit 1
		;;
	*)
		if grep -qE "fetching vulnerabilities|vuln\.go\.dev${GOVULNDB:+|$GOVULNDB}" "$work/log"; then
			unchecked "the database ${GOVULNDB:-https://vuln.go.dev} cannot be reached; govulncheck ended with"
		fi
		cat "$work/log"
		printf 'vuln: govulncheck failed in %s with exit code %d\n' "$module" "$code" >&2
		exit 1
		;;
	esac
done
