# SPDX-License-Identifier: MIT OR Apache-2.0
CARGO ?= cargo

.PHONY: all demo test bench stats kills reproduce soak bisect fragments selftest mutants fuzz lint setup install clean

all:
	$(CARGO) build --release --workspace

setup:
	./setup

# The main job: from a patch series to a verdict about a real kernel.
demo: setup
	$(CARGO) run --release --package kvet -- run configs/plans/khugepaged-cold.yaml

# All tests, with real kernels built and booted.
test: setup
	$(CARGO) test --workspace

# How fast kvet is where it must be: a mailing list's mbox, builds, a guest that works.
bench: setup
	$(CARGO) bench --package kvet --bench mail --bench builds --bench boots

# Are counts exact, is what is the same called the same, is a small change found?
stats: setup
	KVET_EXACT=20 KVET_AA=200 KVET_CHANGES=20 $(CARGO) test --package kvet --test counted --test sensitivity -- --nocapture --test-threads=1

# kvet killed a hundred times: no QEMU may outlive it, and a run goes on. And sixty
# times, twelve of them with Linux, while it unpacks, builds and stores.
kills: setup
	KVET_KILLS=100 KVET_BUILD_KILLS=60 KVET_LINUX_KILLS=12 $(CARGO) test --package kvet --test kills --test resume --test build_kills -- --nocapture

# The same inputs give the same bytes: three full builds of Linux, each another way.
reproduce: setup
	KVET_REPRODUCE=1 $(CARGO) test --release --package kvet --test reproducible -- --nocapture

# Five hundred boots in one process, half of them restored.
soak: setup
	KVET_SOAK=500 $(CARGO) test --release --package kvet --test soak -- --nocapture

# Builds and boots a kernel with each kconfig fragment, with clang, and a 6.1.
fragments: setup
	KVET_FRAGMENTS=all $(CARGO) test --package kvet --test fragments -- --nocapture

# The bad change among 64 on top of Linux, by each kind of predicate, and the guilty one of
# some 450 config symbols: about 115 builds.
bisect: setup
	KVET_BISECT=all $(CARGO) test --package kvet --test bisect_real -- --nocapture

# Breaks kernels in every way that kvet knows and checks what it says of each.
selftest: setup
	$(CARGO) run --release --package kvet -- selftest

# Our own series with a mistake in them, one at a time: do their tests notice?
mutants: setup
	$(CARGO) run --release --package kvet -- mutants

# Ten minutes for each reader of untrusted input.
fuzz:
	orchestrator/fuzz/run

lint:
	$(CARGO) fmt --all --check
	$(CARGO) clippy --workspace --all-targets -- -D warnings
	if command -v cargo-deny >/dev/null; then $(CARGO) deny check; else echo "cargo-deny is not installed: licences and advisories were not checked"; fi

install:
	$(CARGO) install --locked --path orchestrator

clean:
	$(CARGO) clean
