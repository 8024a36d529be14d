#!/usr/bin/env bash
# Builds and runs every test this machine can run: the release build whole, the thread sanitizer on the tests that race
# ranks as threads, the address and undefined-behaviour sanitizers on unit, error and golden tests. The last line sums all up.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

# What the caller's shell sets for his own runs must not change what the tests see.
unset "${!TANDEM_@}"

# The sanitizers of gcc 12 cannot place their shadow memory where the kernel randomises 32 bits of every address.
fixed_addresses=()
if setarch -R true 2>/dev/null; then
  fixed_addresses=(setarch -R)
fi
export TSAN_OPTIONS="halt_on_error=1:second_deadlock_stack=1${TSAN_OPTIONS:+:$TSAN_OPTIONS}"
# Absurd sizes must come back as an error, as they do without the sanitizer, and a hit guard page must end the process by its
# signal: tests ask for both.
export ASAN_OPTIONS="allocator_may_return_null=1:handle_segv=0${ASAN_OPTIONS:+:$ASAN_OPTIONS}"
export UBSAN_OPTIONS="print_stacktrace=1:halt_on_error=1${UBSAN_OPTIONS:+:$UBSAN_OPTIONS}"

reports=build/test-reports
rm -rf "$reports"
mkdir -p "$reports"
failed_steps=()

# run_preset PRESET LABELS TARGET... : LABELS is a regular expression, empty for all tests.
run_preset() {
  local preset=$1 labels=$2
  shift 2
  echo "== $preset: build"
  if ! tools/build.sh "$preset" "$@"; then
    failed_steps+=("build of $preset")
    echo "<testsuite><testcase name=\"build of $preset\" status=\"fail\"/></testsuite>" >"$reports/$preset.xml"
    return
  fi
  echo "== $preset: test"
  local wrapper=()
  [[ "$preset" == release ]] || wrapper=("${fixed_addresses[@]}")
  "${wrapper[@]}" ctest --test-dir "build/$preset" ${labels:+-L "$labels"} --parallel 2 --output-on-failure \
    --no-tests=error --output-junit "$PWD/$reports/$preset.xml" </dev/null || failed_steps+=("tests of $preset")
}

run_preset release "" all
run_preset tsan '^race$' tests_race
run_preset asan '^(unit|error|golden)$' tests_unit tests_error tests_golden

for step in "${failed_steps[@]}"; do
  echo "failed: $step"
done
python3 tools/sum_up_tests.py "${#failed_steps[@]}" "$reports"/*.xml
