#!/usr/bin/env bash
# tandem as a part of another project's build, by add_subdirectory() and by FetchContent: the library alone. GTest and CLI11
# are as good as missing. One build is made whole; where the compiler's cache has the library's objects, they are its.
set -euo pipefail
source=$1
# A folder as deep as that of the build: a compiler's cache with a base folder knows files by relative paths.
stage=$2/subproject-test
[[ "$2" == "$source/build/$(basename "$2")" ]] && stage=$source/build/subproject-test
rm -rf "$stage"{,-whole}
mkdir -p "$stage"
source "$source/tools/set_up_ccache.sh"

configure() {
  local folder=$1
  shift
  cmake -S "$source/tests/install/subproject" -B "$folder" -G Ninja -DTANDEM="$source" -DCMAKE_BUILD_TYPE=Release \
    -DCMAKE_EXPORT_COMPILE_COMMANDS=ON -DCMAKE_DISABLE_FIND_PACKAGE_GTest=ON -DCMAKE_DISABLE_FIND_PACKAGE_CLI11=ON "$@"
}

fail() {
  echo "$*"
  exit 1
}

echo "== settings of the other project"
configure "$stage/hostile" -DWAY=add_subdirectory -DSET_BEFORE="$source/tests/install/subproject/hostile.cmake"
commands=$stage/hostile/compile_commands.json
ours=$(grep "\"command\":.*$source/src/" "$commands")
grep -qF "$source/src/base/fmt.cpp" <<<"$ours" && fail "fmt is compiled, though the project has a target of it"
grep -vF -e '-Wno-error' <<<"$ours" && fail "a warning stops the build of the sources above"
grep -E -e '-Wno-error.* -Werror( |=|$)' <<<"$ours" && fail "the project makes warnings errors behind what tandem says"
grep -vF -e '-std=gnu++20' <<<"$ours" && fail "the sources above are not compiled as C++20"
grep -vF -e '-fPIC' <<<"$ours" && fail "the sources above cannot go into a shared library"
grep "\"command\":.*CMakeFiles/program.dir/" "$commands" | grep -qF -e "-isystem $source/include" ||
  fail "the project's own program is to be warned about tandem's headers"

echo "== TANDEM_CUDA=AUTO in a project without CUDA"
grep -q '^TANDEM_WHY_NO_CUDA:INTERNAL=tandem_parent has not enabled' "$stage/hostile/CMakeCache.txt" ||
  fail "there is a CUDA part, or no reason why not"

echo "== what is asked for"
configure "$stage/asked" -DWAY=add_subdirectory -DTANDEM_INSTALL=ON >/dev/null
grep -q include/tandem "$stage/asked/tandem/cmake_install.cmake" || fail "TANDEM_INSTALL=ON installs no headers"

echo "== FetchContent, whole"
launcher=$(sed -n 's/^TANDEM_CCACHE:FILEPATH=\(.*[^D]\)$/\1/p' "$2/CMakeCache.txt")
whole=$stage-whole
configure "$whole" -DWAY=FetchContent -DTANDEM_WARNINGS_AS_ERRORS=ON -DCMAKE_CXX_COMPILER_LAUNCHER="$launcher"
cmake --build "$whole" --parallel 2
ctest --test-dir "$whole" --no-tests=error --output-on-failure | tee "$stage/tests"
grep -q 'out of 1$' "$stage/tests" || fail "the project has one test"
grep -E 'LINK_LIBRARIES = .*lib(fmt|spdlog)' "$whole/build.ninja" && fail "the program is linked with what only tandem uses"
cmake --install "$whole" --prefix "$stage/prefix" >/dev/null
diff <(cd "$stage/prefix" && find . -type f) <(echo ./bin/program) || fail "installed: more than the project's program"
