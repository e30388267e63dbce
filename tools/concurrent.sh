#!/usr/bin/env bash
# Prints the packages of the main module that have tests and something concurrent: goroutines, locks, sockets, processes
# or parallel tests in a file of theirs. In the others, which only compute, the race detector finds nothing. The
# examples are left out too: what runs concurrently there is in the packages that they show.
set -euo pipefail
cd "$(dirname "$0")/.."
concurrent='^\s*go (func\b|[A-Za-z_.]+\()|\.Go\(|"(sync|sync/atomic|net|net/http|os/exec|testing/synctest)"'
concurrent+='|AfterFunc|errgroup|\.Parallel\('
go list -f '{{if or .TestGoFiles .XTestGoFiles}}{{.ImportPath}} {{.Dir}}{{end}}' ./... | while read -r package directory; do
	[[ $package != */examples/* ]] && grep -qE "$concurrent" "$directory"/*.go || continue
	echo "$package"
done
