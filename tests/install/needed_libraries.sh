#!/usr/bin/env bash
# The tool starts on a machine that has nothing but the C and C++ runtime.
set -euo pipefail
binary=$2/install-test/prefix/bin/tandem
needed=$(readelf -d "$binary" | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p')
if [[ -z "$needed" ]]; then
  echo "readelf found no needed library in $binary"
  exit 1
fi
others=$(grep -vE '^(libc|libm|libstdc\+\+|libgcc_s)\.so\.[0-9]+$|^ld-linux' <<<"$needed" || true)
if [[ -n "$others" ]]; then
  echo "$binary also needs:" "$others"
  exit 1
fi
if readelf -d "$binary" | grep -E '\((RPATH|RUNPATH)\)'; then
  echo "$binary looks for libraries in folders of its own"
  exit 1
fi
