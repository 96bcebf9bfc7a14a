VERSION := $(shell git describe --tags --always --dirty 2>/dev/null || echo dev)
BIN ?= bin
STATIC = CGO_ENABLED=0 go build -trimpath -ldflags="-s -w -X main.version=$(VERSION)"
# Static with the C library too: no ld.so work at each start, and one file runs on every distribution.
TAGS = netgo,osusergo,runc_nocriu

.PHONY: build
build:
	$(STATIC) -o $(BIN)/skillbox ./cmd/skillbox
	$(STATIC) -o $(BIN)/skillbox-init ./cmd/skillbox-init
	CGO_ENABLED=1 go build -trimpath -tags $(TAGS) -ldflags='-s -w -linkmode external -extldflags "-static"' -o $(BIN)/skillboxd ./cmd/skillboxd
	CGO_ENABLED=0 go build -trimpath -ldflags="-s -w" -o examples/static-go/bin/static-go ./examples/static-go
