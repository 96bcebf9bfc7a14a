STATIC = CGO_ENABLED=0 go build -trimpath -ldflags="-s -w -X main.version=$(VERSION)"
VERSION := $(shell git describe --tags --always --dirty 2>/dev/null || echo dev)

.PHONY: build
build:
	$(STATIC) -o bin/skillbox ./cmd/skillbox
	$(STATIC) -o bin/skillbox-init ./cmd/skillbox-init
	CGO_ENABLED=1 go build -trimpath -tags "netgo osusergo runc_nocriu" -ldflags='-s -w -linkmode external -extldflags "-static"' -o bin/skillboxd ./cmd/skillboxd
	CGO_ENABLED=0 go build -trimpath -o examples/static-go/bin/static-go ./examples/static-go
