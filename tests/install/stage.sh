#!/usr/bin/env bash
# Installs the build, then moves the tree: nothing in it may know where it was installed first.
set -euo pipefail
build=$2
stage=$build/install-test
rm -rf "$stage"
cmake --install "$build" --prefix "$stage/first" >/dev/null
mv "$stage/first" "$stage/prefix"
