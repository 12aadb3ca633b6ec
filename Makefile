# GNU make 3.81 and bash 3.2 are enough. `make help` lists the targets.
SHELL := /bin/bash
.SHELLFLAGS := -e -o pipefail -c
.DEFAULT_GOAL := help

CARGO ?= cargo
CARGO_DENY_VERSION := 0.20.2
# An installed cargo-deny, else one of our own.
CARGO_DENY := $(or $(shell command -v cargo-deny 2>/dev/null),target/tools/bin/cargo-deny)

.PHONY: help
help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-8s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: wasm
wasm: ## build target/wasm/filter.wasm
	@filter/build-wasm.sh

.PHONY: test
test: ## run every test: unit, simulator, a real Envoy
	@scripts/setup.sh test
	@filter/build-wasm.sh
	$(CARGO) test --workspace --locked

.PHONY: bench
bench: ## what the filter adds to a request in a real Envoy, beside its rivals
	@scripts/setup.sh test
	@$(CARGO) run --quiet --locked --package tests --bin weir-bench -- $(BENCH)

.PHONY: lint
lint: target/tools/lint-ready ## rustfmt, clippy (native and wasm32), rustdoc, cargo-deny; warnings are errors
	$(CARGO) fmt --all --check
	$(CARGO) clippy --workspace --all-targets --locked -- -D warnings
	filter/build-wasm.sh --clippy
	RUSTDOCFLAGS="-D warnings" $(CARGO) doc --workspace --no-deps --locked
	$(CARGO_DENY) --offline check bans licenses sources

.PHONY: target/tools/lint-ready
target/tools/lint-ready: $(CARGO_DENY)
	@scripts/setup.sh lint
	@$(CARGO) fetch --locked --quiet

.PHONY: audit
audit: $(CARGO_DENY) ## known vulnerabilities in dependencies (fetches the advisory database)
	$(CARGO_DENY) check advisories

target/tools/bin/cargo-deny:
	@scripts/setup.sh demo
	$(CARGO) install --locked --quiet cargo-deny --version $(CARGO_DENY_VERSION) --root target/tools

.PHONY: clean
clean: ## remove everything that was built or fetched
	rm -rf target
