#!/usr/bin/env bash
# Runs the tests of the core, built for Windows, under Wine. Without Wine it says so and succeeds; WINE=required fails then.
set -euo pipefail
cd "$(dirname "$0")/.."

if ! command -v wine >/dev/null; then
	echo 'there is no wine: apt-get install --no-install-recommends wine wine64'
	[ "${WINE:-}" != required ]
	exit
fi
out=$PWD/out/windows
mkdir -p "$out"
export WINEPREFIX=$out/prefix WINEDEBUG=-all FARCALL_WINE=1
[ -e "$WINEPREFIX/system.reg" ] || wine wineboot --init >/dev/null 2>&1
system=$WINEPREFIX/drive_c/windows/system32
[ -e "$system/bcryptprimitives.dll" ] || go -C tools run ./wine "$system/bcryptprimitives.dll" # Wine before 9 has none

# Wine 8 has no unix sockets (the first five), and does not remove a directory at the end of the last.
skip='^(TestPlaintextIsOff|TestListenUnix|TestDial|TestDialErrors|TestDialNetwork|TestConnectAndCloseLeavesNothing)$'
packages=(jsonrpc internal/scan internal/jsonv2 internal/validate internal/npipe stream . httprpc wsrpc internal/target internal/port rpc mcp)
[ $# = 0 ] || packages=("$@")
failed=0
for package in "${packages[@]}"; do
	program=$out/${package//\//_}.exe
	[ "$package" != . ] || program=$out/farcall.exe
	GOOS=windows GOARCH=amd64 go test -c -o "$program" "./$package"
	if (cd "$package" && timeout 300 wine "$program" -test.timeout 280s -test.skip "$skip") >"$program.log" 2>&1; then
		echo "ok    $package"
	else
		failed=1
		echo "FAIL  $package: see ${program#"$PWD/"}.log"
		grep -E '^ *--- FAIL|^panic:' "$program.log" | head -20 || true
	fi
done
exit $failed
