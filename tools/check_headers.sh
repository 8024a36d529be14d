#!/usr/bin/env bash
# Compiles every header alone, with g++ and with clang++: check_headers.sh [HEADER...]
# Public headers see include/ only, as in a user's program. Those of the CUDA leaves are left out where there is no toolkit.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

nvcc=$(command -v nvcc || echo /usr/local/cuda/bin/nvcc)
toolkit=$(dirname "$(dirname "$nvcc")")/include
[[ -e "$toolkit/cuda_runtime_api.h" ]] || toolkit=
export toolkit

check_header() {
  local compiler=$1 header=$2
  local folders=(-Iinclude ${toolkit:+-isystem "$toolkit"})
  case "$header" in
    src/*) folders+=(-Isrc) ;;
    harness/*) folders+=(-I.) ;;
    cli/*) folders+=(-Icli -I.) ;;
    tests/*) folders+=(-Itests -Isrc -I.) ;;
  esac
  # The main file is a pipe, so that `#pragma once` has no main file to complain about.
  if ! "$compiler" -x c++ -std=c++20 -Wall -Wextra -Werror -DFMT_HEADER_ONLY -fsyntax-only "${folders[@]}" \
    - <<<"#include \"$PWD/$header\""; then
    echo "$header: does not compile alone with $compiler"
    return 1
  fi
}
export -f check_header

if [[ $# -eq 0 ]]; then
  without_toolkit=()
  [[ -n "$toolkit" ]] || without_toolkit=(-not -path 'src/*/cuda/*')
  mapfile -t headers < <(find include src harness cli tests examples -name '*.hpp' "${without_toolkit[@]}" | sort)
else
  headers=("$@")
fi
status=0
for compiler in g++ clang++-14; do
  printf '%s\0' "${headers[@]}" |
    xargs -0 -n 1 -P "$(tools/num_jobs.sh)" bash -c 'check_header "$0" "$1"' "$compiler" || status=1
done
exit "$status"
