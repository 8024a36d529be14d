#!/usr/bin/env bash
# Configures a preset and builds targets of it: tools/build.sh PRESET [TARGET...]
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
preset=$1
shift
targets=("${@:-all}")

# ccache fails, and the build with it, where it cannot write: a home that is missing or read-only.
cache=${CCACHE_DIR:-${XDG_CACHE_HOME:-${HOME:-/nowhere}/.cache}/ccache}
if ! mkdir -p "$cache" 2>/dev/null || [[ ! -w "$cache" ]]; then
  export CCACHE_DISABLE=1
fi

cmake --preset "$preset"
cmake --build "build/$preset" --parallel "$(tools/num_jobs.sh)" --target "${targets[@]}"
