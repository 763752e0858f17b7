# The front door: each target does all set-up that it needs by itself.
SHELL := /bin/bash
.DEFAULT_GOAL := build
PREFIX ?= /usr/local/longhaul
JOBS ?= $(shell nproc)
# Lets ccache keep what was compiled with a precompiled header.
export CCACHE_SLOPPINESS := pch_defines,time_macros,include_file_mtime,include_file_ctime
# And serve any checkout on the machine.
export CCACHE_BASEDIR := $(CURDIR)

.PHONY: help
help: ## list the targets
	@awk -F':.*## ' '/^[a-z-]+:.*## /{printf "  make %-12s %s\n", $$1, $$2}' Makefile

.PHONY: deps
deps: ## Debian packages, the virtual environment .venv, the template engine
	@tools/own_build.sh
	@tools/deps.sh

.PHONY: build
build: deps ## build/bin/longhaul and the tests (preset cpu-release)
	@test -f build/build.ninja || cmake --preset cpu-release
	@cmake --build build -j $(JOBS)

.PHONY: program
program: deps ## build/bin/longhaul alone
	@test -f build/build.ninja || cmake --preset cpu-release
	@cmake --build build -j $(JOBS) --target longhaul

.PHONY: check
check: build ## one minute: unit tests, one parity model, one layout, one resume, one kill
	@tools/test.sh build -L '^(unit|check)$$' -LE '^long$$'

.PHONY: test
test: build ## unit, distributed, parity and end-to-end tests
	@tools/test.sh build -LE '^(soak|gpu|faults|check|alone)$$'

.PHONY: test-gpu
test-gpu: ## tests that need a GPU, of the CUDA build
	@tools/gpu/test.sh build-cuda

.PHONY: test-faults
test-faults: build ## every fault of a cluster once, on a Slurm of namespaces
	@tools/test.sh build -L '^faults$$'

.PHONY: soak
soak: build ## everything that takes longer than a coffee
	@tools/test.sh build -L '^soak$$'

.PHONY: demo
demo: ## two trainings on real text, one killed on the way; with dist's wheel if one is there
	@LONGHAUL=$$(tools/demo_command.sh) && LONGHAUL="$$LONGHAUL" tools/demo.sh

.PHONY: picture
picture: program ## the README's picture, from two trainings of some minutes
	@tools/picture.sh

.PHONY: docs
docs: build ## the pages as a site with a search, in build/site; runs the pages' commands
	@tools/test.sh build -R '^docs_pages_test$$'
	@tools/docs_site.sh build/site

.PHONY: lint
lint: build ## formatting, clang-tidy on changed files, house rules, scripts
	@tools/lint.sh

.PHONY: format
format: ## format every C++ file
	@git ls-files -co --exclude-standard '*.h' '*.cpp' '*.cu' '*.cuh' \
	  | xargs clang-format-19 -i

.PHONY: install
install: program ## a relocatable tree in PREFIX
	@cmake --install build --prefix '$(PREFIX)'

.PHONY: wheel
wheel: program ## dist/longhaul_train-*.whl, with the CUDA library of a build for the same LibTorch
	@.venv/bin/python3 tools/wheel.py

# Of LibTorch for the CUDA build.
CUDA_TORCH ?= 2.11.0

.PHONY: deps-cuda
deps-cuda: deps ## a CUDA LibTorch and, where absent, nvcc, in .cache/cuda
	@CUDA_TORCH='$(CUDA_TORCH)' tools/deps_cuda.sh

.PHONY: cuda
cuda: deps-cuda ## build-cuda/bin/longhaul with the CUDA kernels
	@cmake --preset cuda-release \
	  -DLONGHAUL_TORCH_ROOT='$(CURDIR)/.cache/cuda/torch-$(CUDA_TORCH)/torch'
	@cmake --build build-cuda -j $(JOBS)

.PHONY: clean
clean: ## remove the build directories, keep .venv and .cache
	rm -rf build build-*
