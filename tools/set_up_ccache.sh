#!/usr/bin/env bash
# Sourced before a build. ccache takes paths below this repository as relative: build folders of the same depth, also those
# of other clones, share what was compiled. Where its cache cannot be written, in a home that is missing or read-only,
# ccache would fail, and the build with it: it is disabled.
export CCACHE_NOHASHDIR=1
export CCACHE_BASEDIR=${CCACHE_BASEDIR:-$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)}
cache=${CCACHE_DIR:-${XDG_CACHE_HOME:-${HOME:-/nowhere}/.cache}/ccache}
if ! mkdir -p "$cache" 2>/dev/null || [[ ! -w "$cache" ]]; then
  export CCACHE_DISABLE=1
fi
