# The targets are listed by `make` alone, from the ## comments below.

SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
MAKEFLAGS += --no-builtin-rules --no-print-directory

# Tools are pinned in tools/go.mod. The first run builds them (about a minute), later runs come from Go's build cache.
tool := go tool -modfile=tools/go.mod
# Modules: this one, and those below that exist.
below := $(patsubst %/go.mod,%,$(wildcard bench/go.mod interop/go.mod))
modules := . $(below)
FUZZTIME ?= 10s

.PHONY: help
help: ## List the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## (.*)/\1\t\2/' | while IFS=$$'\t' read -r t d; do printf '  make %-14s %s\n' "$$t" "$$d"; done

.PHONY: check
check: lint format prose site race vuln ## Everything a change must pass: lint with vet and fix, format, prose, site, race tests, vuln

.PHONY: test
test: ## Run the tests
	go test ./...

.PHONY: race
race: ## Run the tests of packages that have something concurrent with the race detector (race-full: all)
	@# By default each process, the children of tests too, sleeps for a second before it exits.
	@# make lint vets the tests.
	CGO_ENABLED=1 GORACE="atexit_sleep_ms=50" go test -vet=off -race $$(tools/concurrent.sh)

.PHONY: race-full
race-full: ## Run all tests with the race detector; make race leaves out packages and scripts
	CGO_ENABLED=1 FARCALL_FULL=1 GORACE="atexit_sleep_ms=50" go test -vet=off -race -timeout 30m ./...

.PHONY: full
full: ## Run whole the tests of which make test runs a part: all revisions and transports, largest sizes, hostile programs
	FARCALL_FULL=1 go test . ./cmd/farcall ./gateway ./internal/cluster ./internal/sandbox ./observe/metrics ./gateway/internal/upstream \
		-run 'TestModel$$|TestSlowConsumer|TestNewScripts|TestMatrix|TestTraces|TestRootsOfChildren|TestLifetimes|TestManyClients|TestProcess|TestHostile' -count=1

.PHONY: nightly
nightly: vet fix full race-full fuzz ## Run what CI has no time for: bench and interop vetted, all combinations, all with the race detector, each fuzz target

.PHONY: matrix
matrix: ## Try clients of each revision and transport with servers of each, through a gateway, and each feature
	FARCALL_FULL=1 go test ./gateway -run 'TestMatrix$$' -count=1 -v

.PHONY: format
format: ## Show what is not formatted beside the main module, which make lint looks at (make fmt formats all)
	$(tool) golangci-lint fmt --diff $(below) tools

.PHONY: fmt
fmt: ## Format all files
	$(tool) golangci-lint fmt

.PHONY: vet
vet: ## Run go vet on the modules below; on the main module make lint does so
	@for m in $(below); do echo "go -C $$m vet ./..."; go -C $$m vet ./...; done

.PHONY: fix
fix: ## Show what go fix would modernise in the modules below; make lint does so for the main module
	@for m in $(below); do echo "go -C $$m fix -diff ./..."; go -C $$m fix -diff ./...; done

.PHONY: lint
lint: ## Run the linters of .golangci.yml
	$(tool) golangci-lint run

.PHONY: prose
prose: ## Check the language of comments, strings, names and documents, and that lines have 100 columns at most
	@go -C tools test ./prose
	@go -C tools build -o ../out/prose ./prose
	@out/prose

.PHONY: site
site: ## Render the documents as a static site in out/site; a link that leads nowhere is an error
	@go -C tools/site vet ./...
	@go -C tools/site test ./...
	@go -C tools/site run . -out ../../out/site

.PHONY: cross
cross: ## Check that everything, tests too, compiles for each system that farcall is built for
	@go -C tools build -o ../out/crosscheck ./crosscheck
	@out/crosscheck linux/amd64 linux/arm64 linux/386 darwin/amd64 darwin/arm64 windows/amd64 windows/arm64

.PHONY: vuln
vuln: ## Look for known vulnerabilities; says so where it cannot (VULN=required fails then)
	@tools/vuln.sh $(modules)

.PHONY: fuzz
fuzz: ## Run each fuzz target for FUZZTIME (10s)
	tools/fuzz.sh $(FUZZTIME)

.PHONY: fuzz-http
fuzz-http: ## Compare the fast reader of HTTP with net/http for FUZZEXECS heads (1,000,000,000); guided by coverage, and answers, for a hundredth of them
	FARCALL_HEADS=$(or $(FUZZEXECS),1000000000) go test ./internal/http1 -run '^TestHeads$$' -timeout 0 -count 1 -v
	go test ./internal/http1 -run '^$$' -fuzz '^FuzzHead$$' -fuzztime $$(($(or $(FUZZEXECS),1000000000) / 100))x
	go test ./internal/http1 -run '^$$' -fuzz '^FuzzExchange$$' -fuzztime $$(($(or $(FUZZEXECS),1000000000) / 100))x

.PHONY: references
references: ## Follow 100,000 names and URIs through a gateway of servers that share them
	FARCALL_REFERENCES=100000 go test -count=1 -run 'TestReferences$$' -v ./gateway

.PHONY: faults
faults: ## Kill, stop, cut off and restart nodes of clusters of 3 and 5 processes, for SEEDS (20) histories of calls
	FARCALL_FAULTS=$(or $(SEEDS),20) go test ./cmd/farcall -run '^TestFaults$$' -timeout 0 -count 1 -v

.PHONY: simulate
simulate: ## Simulate clusters with faults in virtual time, for SEEDS (1000) histories of calls
	FARCALL_SIMULATE=$(or $(SEEDS),1000) go test ./internal/cluster -run '^TestSimulation$$' -timeout 0 -count 1 -v

.PHONY: conform
conform: ## Run the official MCP suite, and the tests against other implementations (interop/)
	@interop/setup.sh
	go -C interop run ./suite
	@# They wait for processes and pages: two of them for each processor.
	go -C interop test -vet=off -count=1 -timeout 20m -parallel $$((2 * $$(nproc))) ./...

# The TypeScript server and the gateway that bench measures. Without npm it is skipped there.
bench/node/node_modules: bench/node/package-lock.json
	@! command -v npm >/dev/null || npm ci --prefix bench/node --no-audit --no-fund --ignore-scripts --loglevel=error

.PHONY: openapi
openapi: ## Read the OpenAPI documents in the folder DOCS (docs/openapi.md says which are public)
	@test -n "$(DOCS)" || { echo "usage: make openapi DOCS=FOLDER, a folder of OpenAPI documents; docs/openapi.md names public ones" >&2; exit 2; }
	OPENAPI_DOCS="$(abspath $(DOCS))" go test ./mcp/openapi -run TestPublicDocuments -count=1 -v | grep -v '^=== \|--- PASS\|--- SKIP'

.PHONY: windows
windows: ## Run the tests of the core for Windows under Wine, where there is one (WINE=required fails without)
	@tools/windows.sh

.PHONY: bench
bench: bench/node/node_modules ## Measure against other implementations and the marks: one table, about 5 minutes
	go -C bench run .

.PHONY: bench-report
bench-report: bench/node/node_modules ## The same, written to docs/performance.md
	go -C bench run . -report ../docs/performance.md

.PHONY: build
build: ## Build the static binary bin/farcall
	CGO_ENABLED=0 go build -trimpath -ldflags "-s -w -X main.commit=$$(git rev-parse --short=12 HEAD 2>/dev/null)" -o bin/farcall ./cmd/farcall

.PHONY: release
release: ## Build the archives, checksums, bills of materials, npm packages and formula: out/release
	@go -C tools build -o ../out/release-tool ./release
	out/release-tool -out out/release

.PHONY: image
image: build ## Build the container image farcall from nothing but the binary, with buildah or docker
	$$(command -v buildah || echo docker) build -f deploy/Containerfile -t farcall .

.PHONY: cover
cover: ## Measure which statements the tests reach: out/cover.html
	@mkdir -p out
	go test -coverpkg=./... -coverprofile=out/cover.out ./...
	go tool cover -html=out/cover.out -o out/cover.html
	@go tool cover -func=out/cover.out | tail -n 1

.PHONY: deadcode
deadcode: ## List functions that nothing calls
	$(tool) deadcode -test ./...

.PHONY: clean
clean: ## Remove what was built
	rm -rf bin out
