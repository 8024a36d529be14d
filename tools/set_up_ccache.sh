#!/usr/bin/env bash
# Sourced before a build. Paths below this repository count as relative, so that builds in other folders of the same depth,
# and in other clones, find what is there. ccache fails, and the build with it, where it cannot write: a home that is
# missing or read-only.
export CCACHE_BASEDIR=${CCACHE_BASEDIR:-$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)}
cache=${CCACHE_DIR:-${XDG_CACHE_HOME:-${HOME:-/nowhere}/.cache}/ccache}
if ! mkdir -p "$cache" 2>/dev/null || [[ ! -w "$cache" ]]; then
  export CCACHE_DISABLE=1
fi
