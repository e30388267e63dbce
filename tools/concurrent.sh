#!/usr/bin/env bash
# Prints the packages of the main module that make race tests: those that have something concurrent, which is
# goroutines, locks, sockets, processes or parallel tests in a file of theirs. In the others, which only compute, the race
# detector finds nothing. Left out are the examples, since what runs concurrently there is in the packages that they show,
# and the packages that need the NATS engine or the client of Valkey: large modules, compiled for these alone.
set -euo pipefail
cd "$(dirname "$0")/.."
concurrent='^\s*go (func\b|[A-Za-z_.]+\()|\.Go\(|"(sync|sync/atomic|net|net/http|os/exec|testing/synctest)"'
concurrent+='|AfterFunc|errgroup|\.Parallel\('
large=' github.com/(nats-io/nats-server/v2/server|redis/go-redis/v9) '
# Of each package with tests: its path, its directory, and all that they import. A test binary has the package's path
# in ForTest.
go list -test -f '{{if .ForTest}}{{.ForTest}} {{.Dir}} {{join .Deps " "}} {{end}}' ./... |
	awk -v large="$large" '$1 ~ /\/examples\// { next } { dir[$1] = $2 } $0 ~ large { left[$1] = 1 }
		END { for (p in dir) if (!left[p]) print p, dir[p] }' | sort | while read -r package directory; do
	grep -qE "$concurrent" "$directory"/*.go || continue
	echo "$package"
done
