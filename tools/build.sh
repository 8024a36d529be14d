#!/usr/bin/env bash
# Configures a preset and builds targets of it: tools/build.sh [--to-run-here] PRESET [TARGET...]
# Whether a build for users (release, debug) has its CUDA part: tools/choose_cuda.py. The last line says what it was.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
to_run_here=()
if [[ "$1" == --to-run-here ]]; then
  to_run_here=("$1")
  shift
fi
preset=$1
shift
targets=("${@:-all}")

source tools/set_up_ccache.sh

settings=()
why=
if [[ "$preset" == release || "$preset" == debug ]]; then
  choice=$(tools/choose_cuda.py "${to_run_here[@]}" "build/$preset")
  settings=("-DTANDEM_CUDA=${choice%%$'\n'*}")
  why=${choice#*$'\n'}
  [[ "$why" != "$choice" ]] || why=
fi
cmake --preset "$preset" "${settings[@]}"
cmake --build "build/$preset" --parallel "$(tools/num_jobs.sh)" --target "${targets[@]}"

if [[ ${#settings[@]} -gt 0 ]]; then
  why_not=$(sed -n 's/^TANDEM_WHY_NO_CUDA:INTERNAL=//p' "build/$preset/CMakeCache.txt")
  if [[ -z "$why_not" ]]; then
    echo "build/$preset: built with CUDA${why:+ ($why)}"
  elif [[ "$why_not" == TANDEM_CUDA=* ]]; then
    echo "build/$preset: built without CUDA ($why)"
  else
    echo "build/$preset: built without CUDA ($why_not)"
  fi
fi
