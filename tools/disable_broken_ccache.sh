#!/usr/bin/env bash
# Sourced before a build. ccache fails, and the build with it, where it cannot write: a home that is missing or read-only.
cache=${CCACHE_DIR:-${XDG_CACHE_HOME:-${HOME:-/nowhere}/.cache}/ccache}
if ! mkdir -p "$cache" 2>/dev/null || [[ ! -w "$cache" ]]; then
  export CCACHE_DISABLE=1
fi
