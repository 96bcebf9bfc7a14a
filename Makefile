# Two commands set everything up on a fresh Debian 12 or Ubuntu machine with Go: make demo, make test.
VERSION := $(shell git describe --tags --always --dirty 2>/dev/null || echo dev)
BIN ?= bin
# Static with the C library too: no ld.so work at each start, and one file runs on every distribution.
TAGS = netgo,osusergo,runc_nocriu
FLAGS = -trimpath -tags $(TAGS) -ldflags='-s -w -X main.version=$(VERSION) -linkmode external -extldflags "-static"'
STATIC = CGO_ENABLED=0 go build -trimpath -ldflags="-s -w -X main.version=$(VERSION)"
LINT = github.com/golangci/golangci-lint/v2/cmd/golangci-lint@v2.15.0
# Later ones need a module that its host does not give to everybody.
NFPM = github.com/goreleaser/nfpm/v2/cmd/nfpm@v2.45.2
FUZZTIME ?= $(if $(CI),10s,3s)
# Calls that `make soak` makes: a day of many skills. CI makes 2,000 of them.
SOAK_CALLS ?= $(if $(CI),2000,100000)
# What each goal needs, as "command or file" = "Debian package".
NEED_BUILD = gcc=gcc /usr/include/seccomp.h=libseccomp-dev
NEED_DEMO = newuidmap=uidmap /usr/bin/python3=python3
NEED_TEST = git=git curl=curl setpriv=util-linux iptables=iptables node=nodejs npm=npm faketime=faketime minisign=minisign podman=podman crun=crun patch=patch /usr/lib/python3/dist-packages/pypdf/__init__.py=python3-pypdf \
	$(CHROMIUM)
# Ubuntu has it as a snap only, which cannot be run from everywhere: there the pages are tried in a browser that is there already, or not at all.
CHROMIUM = $(shell . /etc/os-release; test "$$ID" = ubuntu || echo /usr/bin/chromium=chromium)
NEED_VM = qemu-system-x86_64=qemu-system-x86 mmdebstrap=mmdebstrap mke2fs=e2fsprogs /usr/share/keyrings/debian-archive-keyring.gpg=debian-archive-keyring
NEED_VAGRANT = vagrant=vagrant rsync=rsync
# Only where neither the system's libvirt nor VirtualBox is used.
NEED_LIBVIRT = $(NEED_VM) /usr/share/vagrant-plugins/plugins.d/vagrant-libvirt.json=vagrant-libvirt libvirtd=libvirt-daemon-system \
	virsh=libvirt-clients dnsmasq=dnsmasq-base qemu-img=qemu-utils ip=iproute2 pkill=procps
NEED_BENCH = hyperfine=hyperfine bwrap=bubblewrap runc=runc podman=podman iperf3=iperf3 ip=iproute2

.PHONY: build mcp-servers demo test lint vet race fuzz unit integration vm vm-package guest vagrant package soak bench clean
build:
	@integration/need $(NEED_BUILD)
	$(STATIC) -o $(BIN)/skillbox ./cmd/skillbox
	$(STATIC) -o $(BIN)/skillbox-init ./cmd/skillbox-init
	$(STATIC) -o $(BIN)/skillbox-scan ./cmd/skillbox-scan
	$(STATIC) -o $(BIN)/skillbox-mcp ./cmd/skillbox-mcp
	$(STATIC) -o $(BIN)/skillbox-image ./cmd/skillbox-image
	CGO_ENABLED=1 go build $(FLAGS) -o $(BIN)/skillboxd ./cmd/skillboxd
	CGO_ENABLED=0 go build -trimpath -ldflags="-s -w" -o examples/static-go/bin/static-go ./examples/static-go

demo:
	@integration/need $(NEED_BUILD) $(NEED_DEMO)
	@$(MAKE) --no-print-directory build
	@BIN=$(BIN) integration/demo

# Everything that is checked, in the order in which failures are cheapest. CI calls this and nothing else.
test:
	@integration/need $(NEED_BUILD) $(NEED_DEMO) $(NEED_TEST) $(NEED_VM)
	@$(MAKE) --no-print-directory build lint unit race fuzz integration $(if $(CI),soak)
	@VM_SPLIT=1 $(MAKE) --no-print-directory vm

lint:
	go vet ./...
	go run $(LINT) run

unit:
	go test $$(go list ./... | grep -v '/integration$$')

# The race detector over everything that runs without a box: boxes run the built programs.
race:
	CGO_ENABLED=1 go test -race -short $$(go list ./... | grep -v -e /integration -e /seccomp)

fuzz:
	@integration/fuzz $(FUZZTIME)

# The MCP servers and the client that tests run.
mcp-servers:
	@integration/mcp/install .cache/mcp

integration: build mcp-servers
	@BIN=$(BIN) integration/ring

# The same tests on a stock Debian kernel with systemd and cgroup v2, as root and as a user who has logged in: VM_KERNEL=6.1 make vm
vm:
	@integration/need $(NEED_BUILD) $(NEED_VM)
	@$(MAKE) --no-print-directory build
	@BIN=$(BIN) integration/vm/run

# The package in a fresh machine: VM_RELEASE=noble make vm-package is Ubuntu 24.04 with its restriction of user namespaces.
vm-package: package
	@integration/need $(NEED_VM)
	@BIN=$(BIN) integration/vm/package

# What a machine needs to run these tests, in bin/guest: the Vagrantfile says what for.
guest:
	@integration/need $(NEED_BUILD)
	@$(MAKE) --no-print-directory build
	@BIN=$(BIN) integration/vm/pack $(BIN)/guest

# The Vagrantfile with a few tests: with the system's libvirt if it answers; otherwise as root with one of its own.
vagrant:
	@integration/need $(NEED_BUILD) $(NEED_VAGRANT)
	@$(MAKE) --no-print-directory guest
	@BIN=$(BIN) NEED="$(NEED_LIBVIRT)" integration/vm/vagrant

# Every kind of call by eight clients at a time, while clients, skills and services are killed. SOAK_SEED=N repeats the choices of a run.
soak: build
	SKILLBOX_BIN=$(abspath $(BIN)) SOAK_CALLS=$(SOAK_CALLS) go test -count=1 -v -timeout 0 -run '^TestSoak$$' ./integration

# bin/package/skillbox_VERSION_ARCH.deb and .rpm: docs/install.md
package:
	@integration/need $(NEED_BUILD)
	@$(MAKE) --no-print-directory build
	@BIN=$(BIN) VERSION=$(VERSION) NFPM=$(NFPM) packaging/build

bench:
	@integration/need $(NEED_BUILD) $(NEED_DEMO) $(NEED_BENCH)
	@$(MAKE) --no-print-directory build
	go run ./integration/bench -bin $(BIN)
	go test -run '^$$' -bench 'Create|Digest|Group' -benchtime 20x ./rootfs ./bundle ./cgroup

clean:
	rm -rf $(BIN) examples/static-go/bin
