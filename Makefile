# make demo    see it work (root)
# make test    everything that must hold (root)
#
# Each target installs what it lacks on Debian; see scripts/setup.

CARGO := scripts/cargo
WEIR  := $(or $(CARGO_TARGET_DIR),target)/release/weir

.PHONY: all demo build package install test test-long check book swarm test-stock-kernel bench bench-limiter bench-limiter-stock-kernel truth fmt lint deny figures clean setup setup-test

all: build

setup:
	@scripts/setup build

setup-test:
	@scripts/setup test

build: setup
	$(CARGO) build --release --locked

# The Debian package, with units, man pages and completions: dist/weir_VERSION_ARCH.deb.
package: build
	@scripts/setup package
	@scripts/package

# Without a package, for other systems: the binary and the units. PREFIX is where, DESTDIR before it.
PREFIX ?= /usr
install: build
	install -D -m 755 $(WEIR) $(DESTDIR)$(PREFIX)/bin/weir
	for unit in agent controller; do \
		install -d $(DESTDIR)$(PREFIX)/lib/systemd/system; \
		sed 's|/usr/bin/weir|$(PREFIX)/bin/weir|' packaging/weir-$$unit.service \
			>$(DESTDIR)$(PREFIX)/lib/systemd/system/weir-$$unit.service; \
	done
	$(WEIR) man $(DESTDIR)$(PREFIX)/share/man/man1

# A starved tenant without protection, then with it.
demo: build
	@$(WEIR) demo --out out/demo

# Format, lint, dependencies, all tests, short experiments in the lab. At most 12 minutes on two CPUs from a clean clone.
test: setup-test
	@scripts/test

# What takes longer: the slowest tests, a browser, and the lab with the release build. At most 40 minutes on two CPUs.
test-long: setup-test build
	@scripts/setup long
	@scripts/test-long

# What needs neither root nor the lab.
check: setup-test
	@scripts/test --no-lab

# The documents as a book: out/book/index.html. Installs mdBook into the build's folder, which takes some minutes.
book: build
	@scripts/book

# More seeds of what `make check` plays 80 of: `make swarm N=10000`. Other ones: FROM=81.
N ?= 1000
FROM ?= 1
swarm: build
	$(WEIR) swarm --seeds $(N) --from $(FROM)

# The datapath and a small lab on Debian 12's own kernel, in an emulator.
test-stock-kernel: build
	@scripts/test-stock-kernel

# Core: ns per pair and step. Simulator: packet-hops per second and memory, flow solver: ms. Journal: µs per turn. As root
# also the kernel side: ns per packet of each BPF program, the cost of changing classes, and what vCC
# costs connections.
bench: setup
	$(CARGO) bench --workspace --locked
	@if [ "$$(id -u)" != 0 ]; then echo "bpf_cost, shaper_bench and vcc_cost need root: make bench as root" >&2; exit 1; fi
	$(CARGO) run --release --locked -p weir-dataplane --example bpf_cost
	$(CARGO) run --release --locked -p weir-dataplane --example shaper_bench
	$(CARGO) run --release --locked -p weir-dataplane --example vcc_cost

# EyeQ's Fig. 7: what the limiter costs beside HTB alone, as root; some ten minutes on two CPUs that do nothing else.
# Results in out/limiter, how it measures in docs/results/limiter.md.
bench-limiter: build
	$(CARGO) run --release --locked -p weir-dataplane --example limiter -- --weir $(WEIR) --out out/limiter

# The same beside departure times on Debian's 6.1 in an emulator: fewer packets, some seven minutes.
# What its numbers are worth is in docs/results/limiter.md.
bench-limiter-stock-kernel: build
	@scripts/test-stock-kernel limiter

# The simulator beside ns-3 (Debian's libns3-dev): small networks in both, goodput within 5 %. Results in
# out/truth, how it is compared in docs/results/truth.md. Some cases only: make truth CASES="cubic-1 dctcp-2"
CASES ?=
truth:
	@scripts/setup truth
	@scripts/truth $(CASES)

fmt: setup-test
	$(CARGO) fmt --all

lint: setup-test
	$(CARGO) fmt --all --check
	$(CARGO) clippy --workspace --all-targets --locked -- -D warnings

# Licences, sources and the arrows between crates.
deny: setup-test
	@scripts/check-deps
	@if command -v cargo-deny >/dev/null; then $(CARGO) deny check; fi

# The paper's figures as it plays them, three times each: about two hours for these two. Results in out/.
# Others by their files' names: make figures FIGURES="fig02 table2"
FIGURES ?= fig05 fig06
figures: build
	status=0; \
	for figure in $(FIGURES); do \
		$(WEIR) lab scenarios/elasticswitch/$$figure.yaml --repeat 3 --out out/$$figure || status=$$?; \
	done; \
	$(WEIR) report out; exit $$status

clean:
	@if [ -x $(WEIR) ] && [ "$$(id -u)" = 0 ]; then $(WEIR) clean; fi
	rm -rf out dist
	$(CARGO) clean
