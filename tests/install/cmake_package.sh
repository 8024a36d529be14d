#!/usr/bin/env bash
# find_package(tandem): builds the user programs in a folder of their own and runs them.
set -euo pipefail
source=$1
stage=$2/install-test
project=$stage/cmake_package
mkdir -p "$project"
cp "$source"/tests/install/consumer/CMakeLists.txt "$source"/examples/*.{cpp,hpp} "$project"
cmake -S "$project" -B "$project/build" -G Ninja -DCMAKE_BUILD_TYPE=Release -DCMAKE_PREFIX_PATH="$stage/prefix"
cmake --build "$project/build"
for program in "$project"/*.cpp; do
  echo "-- $(basename "$program" .cpp)"
  "$project/build/$(basename "$program" .cpp)"
done
