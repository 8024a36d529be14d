#!/usr/bin/env bash
# Everything that can be said about the sources without running them. All steps run; any fault makes it exit 1.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
jobs=$(tools/num_jobs.sh)
failed_steps=()

step() {
  local name=$1
  shift
  echo "== $name"
  local start=$SECONDS
  "$@" || failed_steps+=("$name")
  echo "   $((SECONDS - start)) s"
}

check_format() {
  find include src harness cli tests examples bench python -name '*.[ch]pp' -print0 |
    xargs -0 -n 16 -P "$jobs" clang-format-14 --dry-run -Werror
}

# Tests are left out: their names are googletest's, and they run anyway.
check_tidy() {
  # File by file: what a unity build puts together has no flags of its own.
  cmake --preset release -B build/lint -DCMAKE_UNITY_BUILD=OFF >/dev/null
  local without_toolkit=()
  grep -q '^TANDEM_WHY_NO_CUDA:INTERNAL=$' build/lint/CMakeCache.txt || without_toolkit=(-not -path '*/cuda/*')
  find src harness cli examples -name '*.cpp' "${without_toolkit[@]}" -print0 |
    xargs -0 -n 1 -P "$jobs" clang-tidy-14 --quiet -p build/lint --extra-arg=-Wno-unknown-warning-option 2> >(grep -v 'warnings\? generated\|^$' >&2)
}

step "checkers" python3 tools/checkers_test.py
step "layers" tools/check_layers.py
step "sizes" tools/check_sizes.py
step "charts" tools/plot_results.py --check
step "format" check_format
step "headers compile alone" tools/check_headers.sh
step "clang-tidy" check_tidy

if [[ ${#failed_steps[@]} -gt 0 ]]; then
  printf 'lint failed: %s\n' "${failed_steps[@]}"
  exit 1
fi
echo "lint: no fault"
