# The front door. Each target installs what it needs (or says which line installs it), then builds.
# CUDA=1 builds the CUDA part, CUDA=0 leaves it out: make demo CUDA=1. Else build and test have it where there is a CUDA
# compiler, demo and bench where a GPU can run it.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := build
MAKEFLAGS += --no-builtin-rules --no-print-directory

.PHONY: build demo test mutants wheel test-torch test-guide lint format docs bench clean packages

## build   the library, the command-line tool and the tests, optimised, in build/release
build: packages
	tools/build.sh release

## demo    builds the tool and runs the main job on whatever this machine has
demo: packages
	tools/build.sh --to-run-here release tandem_cli
	build/release/bin/tandem demo

## test    builds and runs every test this machine can run
test: packages
	tools/run_tests.sh

## wheel   the Python package, in build/wheel; PYTHON=python3.13 for another interpreter
wheel:
	tools/install_packages.sh python
	tools/build_wheel.sh

## test-torch  the ops for PyTorch, on CPUs: installs PyTorch in a virtual environment; TORCH=2.15.0 for another version
test-torch:
	tools/test_torch.sh

## test-guide  the guide to captured graphs as it stands, with models, on PyTorch 2.15; TORCH names another version
test-guide:
	TORCH=$${TORCH:-2.15.0} tools/test_torch.sh --guide || { [[ $$? -eq 77 ]] && echo "skipped: the line above says why"; }

## mutants  breaks one check after the other, and runs the test that must fail then; takes long
mutants: packages
	tools/run_mutants.py

## lint    layers, sizes, format, headers that compile alone, clang-tidy
lint:
	tools/install_packages.sh lint
	tools/lint.sh

## format  formats all sources in place
format:
	tools/install_packages.sh lint
	tools/format.sh

## docs    the reference of the public headers, in build/docs/html
docs:
	tools/install_packages.sh docs
	python3 tools/make_docs.py build/docs

## bench   serial and overlapped times of the fused ops on this machine
bench: packages
	tools/build.sh --to-run-here release tandem_cli
	build/release/bin/tandem bench all_gather_matmul --preset llama3-8b
	build/release/bin/tandem bench matmul_reduce_scatter --preset llama3-8b

clean:
	rm -rf build

packages:
	tools/install_packages.sh build
