#!/usr/bin/env bash
# Builds the fuzzer of each parser, and runs one after the other for so many seconds each:
#
#   tools/run_fuzzers.sh [SECONDS [PARSER...]]       360 seconds and all parsers unless told
#
# It needs clang++-14. Prints a line for each parser: executions, files of the corpus, and new findings. What a fuzzer
# has learnt stays in build/fuzz/corpus/PARSER, so a later run goes on from there. A finding is in
# build/fuzz/found/PARSER-*, its output in PARSER.log beside it; exits 1 if there is any. Once it is mended, its file
# goes into tests/fuzz/corpus/PARSER, which test_error_fuzz reads with any compiler.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
seconds=${1:-360}
[[ "$seconds" =~ ^[1-9][0-9]*$ ]] || { echo "run_fuzzers.sh: '$seconds': need a number of seconds" >&2; exit 2; }
parsers=("${@:2}")
[[ ${#parsers[@]} -gt 0 ]] || mapfile -t parsers < <(find tests/fuzz/corpus -mindepth 1 -maxdepth 1 -printf '%f\n' | sort)

source tools/set_up_ccache.sh
build=build/fuzz
cmake -B "$build" -G Ninja -DCMAKE_CXX_COMPILER=clang++-14 -DTANDEM_FUZZ=ON -DTANDEM_CUDA=OFF \
  -DTANDEM_SANITIZE=fuzzer-no-link,address,undefined >"$build.log" 2>&1 || { cat "$build.log" >&2; exit 2; }
cmake --build "$build" --parallel "$(tools/num_jobs.sh)" --target "${parsers[@]/#/fuzz_}" >"$build.log" 2>&1 ||
  { cat "$build.log" >&2; exit 2; }

# What parsers write is not for a disk.
scratch=$(mktemp -d -p "$([[ -w /dev/shm ]] && echo /dev/shm || echo "${TMPDIR:-/tmp}")" tandem-fuzz-XXXXXX)
trap 'rm -rf "$scratch"' EXIT
status=0
for parser in "${parsers[@]}"; do
  learnt=$build/corpus/$parser
  mkdir -p "$learnt" "$build/found"
  log=$build/found/$parser.log
  before=$(find "$build/found" -name "$parser-*" | wc -l)
  TMPDIR=$scratch "$build/tests/fuzz_$parser" -max_total_time="$seconds" -rss_limit_mb=2048 -malloc_limit_mb=256 \
    -timeout=5 -print_final_stats=1 -artifact_prefix="$build/found/$parser-" \
    "$learnt" "tests/fuzz/corpus/$parser" >"$log" 2>&1 || status=1
  found=$(($(find "$build/found" -name "$parser-*" | wc -l) - before))
  executions=$(sed -n 's/^stat::number_of_executed_units: *//p' "$log")
  echo "$parser: ${executions:-0} executions, $(find "$learnt" -type f | wc -l) files in its corpus, $found new findings"
done
exit "$status"
