#!/bin/sh
# Installs what the tests of this module need in addition to Go: npm packages, as
# node/package-lock.json pins them. Without Node.js those tests are skipped.
set -eu
cd "$(dirname "$0")/node"
if ! command -v npm >/dev/null; then
	echo "interop: there is no npm here; the tests with Node.js will be skipped" >&2
	exit 0
fi
# What is installed already is not installed again.
if [ node_modules/.package-lock.json -nt package-lock.json ]; then
	exit 0
fi
npm ci --no-audit --no-fund --ignore-scripts --loglevel=error
