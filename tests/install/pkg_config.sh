#!/usr/bin/env bash
# `pkg-config tandem` and a compiler: builds the user programs and runs them.
set -euo pipefail
source=$1
stage=$2/install-test
programs=$stage/pkg_config
mkdir -p "$programs"
export PKG_CONFIG_PATH=$stage/prefix/$TANDEM_LIBDIR/pkgconfig
cflags=$(pkg-config --cflags tandem)
libs=$(pkg-config --libs tandem)
read -ra cflags <<<"$cflags"
read -ra libs <<<"$libs"
cd "$programs"  # the flags must hold in any folder
for program in "$source"/examples/*.cpp; do
  name=$(basename "$program" .cpp)
  echo "-- $name"
  cp "$program" "$source"/examples/*.hpp .
  "$CXX" "${cflags[@]}" "$name.cpp" -o "$name" "${libs[@]}"
  "./$name"
done
