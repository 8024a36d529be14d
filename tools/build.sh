#!/usr/bin/env bash
# Configures a preset and builds targets of it: tools/build.sh PRESET [TARGET...]
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
preset=$1
shift
targets=("${@:-all}")
cmake --preset "$preset"
cmake --build "build/$preset" --parallel "$(tools/num_jobs.sh)" --target "${targets[@]}"
