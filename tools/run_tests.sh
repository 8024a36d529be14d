#!/usr/bin/env bash
# Builds and runs every test this machine can run: the release build whole, the Python package from its wheel, the thread
# sanitizer on the tests that race ranks as threads, the address and undefined-behaviour sanitizers on unit, error and golden
# tests and, where there is a CUDA toolkit, on simulated GPUs (docs/design/simulated_gpu.md), and ten mutants. The last line
# sums all up.
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
export LSAN_OPTIONS="suppressions=$PWD/tests/leaks_of_others.txt:print_suppressions=0${LSAN_OPTIONS:+:$LSAN_OPTIONS}"
export UBSAN_OPTIONS="print_stacktrace=1:halt_on_error=1${UBSAN_OPTIONS:+:$UBSAN_OPTIONS}"

reports=build/test-reports
rm -rf "$reports"
mkdir -p "$reports"
failed_steps=()

# build_preset PRESET TARGET... : whether it succeeded.
build_preset() {
  echo "== $1: build"
  tools/build.sh "$@" && return
  failed_steps+=("build of $1")
  echo "<testsuite><testcase name=\"build of $1\" status=\"fail\"/></testsuite>" >"$reports/$1.xml"
  return 1
}

# test_preset PRESET NAME FILTER... : with filters of ctest, reported as NAME.
test_preset() {
  local preset=$1 name=$2
  shift 2
  echo "== $name: test"
  local wrapper=()
  [[ "$preset" == release ]] || wrapper=("${fixed_addresses[@]}")
  "${wrapper[@]}" ctest --test-dir "build/$preset" "$@" --parallel 3 --output-on-failure \
    --no-tests=error --output-junit "$PWD/$reports/$name.xml" </dev/null || failed_steps+=("tests of $name")
}

# report_step NAME STATUS: of a step that wrote its own report; skipped (77) with the reason in the last line of its log.
report_step() {
  case $2 in
    0) ;;
    77)
      echo "<testsuite><testcase name=\"$1\" status=\"disabled\"><system-out>$1: Skipped" \
        $'\n'"$(tail -n 1 "$reports/$1.log")</system-out></testcase></testsuite>" >"$reports/$1.xml"
      ;;
    *) failed_steps+=("tests of $1") ;;
  esac
}

# The Python package, from its wheel; then tandem.torch, where there is PyTorch.
test_python() {
  echo "== python: wheel and test"
  local status=0
  tools/test_python.sh "$reports/python.xml" --ignore-glob="$PWD/tests/python/test_torch_*" 2>&1 </dev/null | tee "$reports/python.log" || status=$?
  report_step python "$status"
  echo "== torch: test"
  [[ $status -eq 77 ]] || WHEEL=$(echo build/wheel/*.whl)
  status=0
  WHEEL=${WHEEL:-} tools/test_torch.sh --if-there "$reports/torch.xml" 2>&1 </dev/null | tee "$reports/torch.log" || status=$?
  report_step torch "$status"
}

build_preset release all && test_preset release release && test_python
build_preset tsan tests_race && test_preset tsan tsan -L '^race$'

# Ten of the mutants, whose tests take a second each: checks that promises rest on can fail. All: tools/run_mutants.py.
echo "== mutants: test"
ten=(10_sizes 13_numel 14_any 15_a_seat 22_files 30_an 31_fingerprints 32_deadlines 33_block 8_memory_file_ignores)
tools/run_mutants.py --report "$reports/mutants.xml" "${ten[@]}" </dev/null || failed_steps+=("mutants")

export SIMULATED_GPUS=2
# One rank on each, and where that is another road both on one GPU; without the longest tests but one.
on_gpus='/cuda( |$)|cuda_each_2( |$)|^conformance.GemmNative|FusedByNccl|(CollCollectives|FusedLateRank|SymmFault).*/cuda_2( |$)'
too_long='keep_their_place|goes_with_the_memory_that_grows|sent_in_pieces|PairsOfTwoChunks|GemmNative.RandomProblems|LargePartsGoInPieces'
too_long+='|ScaledMatmul.native_on_gpus|LargeAndSmallCallsTakeTurns.*/cuda_2 '
if build_preset asan tests_unit tests_error tests_golden tests_conformance tests_fault; then
  # The simulated runtime allocates where the product must not. The others repeat for more ranks or nodes what smaller ones
  # show, for minutes.
  not_here='RepeatPath.*cuda|ProgramVerify.*/[5-8]$|FusedMismatch.*/.*cuda_3|memory_levels_off_over_100000|LargeProgram'
  not_here+='|FusedPushedScatter.*/c.*_[48]|(FusedPushedScatter|FusedNanCheck).*/cuda_3'
  test_preset asan asan -L '^(unit|error|golden)$' -E "$not_here"
  if grep -q '^TANDEM_SIMULATES_GPUS:INTERNAL=ON' build/asan/CMakeCache.txt; then
    test_preset asan simulated -L '^(conformance|fault)$' -R "$on_gpus" -E "$too_long"
  else
    echo "skipped: simulated GPUs: no CUDA toolkit 13 here"
  fi
fi

for step in "${failed_steps[@]}"; do
  echo "failed: $step"
done
python3 tools/sum_up_tests.py "${#failed_steps[@]}" "$reports"/*.xml
