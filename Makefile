# `make` alone lists the targets.
GOLANGCI_VERSION := v2.15.0
TOOLS := $(CURDIR)/.tools
SERVERS := $(TOOLS)/servers

.DEFAULT_GOAL := help
.PHONY: $(SERVERS) $(TOOLS)/bench help run build deps test test-long test-races test-modes bench bench-smoke lint generate fmt

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

run: ## start orderd with nothing else installed: SQLite, in-process Redis and broker, sandbox gateway
	go run ./cmd/orderd

build: ## build ./orderd
	CGO_ENABLED=0 go build -trimpath -o orderd ./cmd/orderd

deps: $(SERVERS) ## install the servers that tests start (Debian, root): MariaDB, Redis, RabbitMQ, Chromium, libfaketime
	$(SERVERS) -install

# The race detector looks at everything that runs in one process; the end-to-end tests run the binary as it is shipped.
test: $(SERVERS) ## run every test against real servers: units with the race detector, then end to end
	$(SERVERS) -rabbitmq -- sh -c 'go test -race -timeout 20m $$(go list ./... | grep -v /e2e) && go test -count=1 -timeout 20m ./e2e'

test-long: export ROUNDS = 200
test-long: export SEEDS = 20
test-long: $(SERVERS) ## the same, with the race detector everywhere, each race repeated 200 times and 20 seeds
	$(SERVERS) -rabbitmq -- go test -race -timeout 180m ./...

test-races: $(SERVERS) ## only the races, crash points and hostile gateways, with the ORDERD_ settings of the environment
	$(SERVERS) -- go test -count=1 ./e2e -run 'Race|Crash|Twin|Hostile|Commit'

test-modes: ## these ungrouped, with a commit for every stage, and both
	ORDERD_BATCH_SIZE=1 $(MAKE) test-races
	ORDERD_STAGE_COMMIT=each $(MAKE) test-races
	ORDERD_BATCH_SIZE=1 ORDERD_STAGE_COMMIT=each $(MAKE) test-races

bench: $(TOOLS)/bench ## measure orderd and the raw-SQL floor in one run (5 minutes); the table goes into docs/benchmarks.md
	$< -rounds 3 -md docs/benchmarks.md -svg docs/benchmarks.svg

bench-smoke: $(TOOLS)/bench ## run every setup of the benchmark for a moment: does it work, and are the books right?
	$< -smoke

lint: $(TOOLS)/golangci-lint-$(GOLANGCI_VERSION) ## gofmt, vet and golangci-lint
	@test -z "$$(gofmt -l .)" || { echo "not gofmt'ed:"; gofmt -l .; exit 1; }
	go vet ./...
	go vet -tags failpoint ./...
	$< run ./...

$(TOOLS)/golangci-lint-$(GOLANGCI_VERSION):
	GOBIN=$(TOOLS) go install github.com/golangci/golangci-lint/v2/cmd/golangci-lint@$(GOLANGCI_VERSION)
	mv $(TOOLS)/golangci-lint $@

generate: ## write the generated parts: diagrams, tables, references
	go generate ./...

fmt: ## format the code
	gofmt -w .

# Built and then run, rather than `go run`, which would not pass a signal on.
.PHONY: $(TOOLS)/bench $(SERVERS) # go build knows what is new
$(TOOLS)/bench: $(SERVERS)
	@$(SERVERS) -install
	@go build -o $@ ./bench

$(SERVERS):
	@go build -o $@ ./internal/testenv/cmd/servers
