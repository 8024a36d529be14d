#!/usr/bin/env bash
# What is installed: every public header and nothing internal, the tool, and no path of the build or source tree.
set -euo pipefail
source=$1
build=$2
prefix=$build/install-test/prefix
status=0

if ! diff <(cd "$source/include" && find . -name '*.hpp' -o -name '*.cuh' | sort) <(cd "$prefix/include" && find . -type f | sort); then
  echo "installed headers are not include/"
  status=1
fi
if grep -rlF -e "$source" -e "$build" "$prefix/$TANDEM_LIBDIR/cmake" "$prefix/$TANDEM_LIBDIR/pkgconfig"; then
  echo "the files above name the folder they were built in"
  status=1
fi
"$prefix/bin/tandem" --version || status=1
exit "$status"
