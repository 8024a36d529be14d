#!/usr/bin/env bash
# Builds the Python wheel into build/wheel: tools/build_wheel.sh. PYTHON names the interpreter (default python3).
# The extension is linked to the libraries of build/release, which are made first where they are missing. Exits 77, with
# the reason, where pip cannot get the tools that build a wheel.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
python=${PYTHON:-python3}

tools/build.sh release tandem_cli
prefix=$PWD/build/python/prefix
rm -rf "$prefix"
cmake --install build/release --prefix "$prefix" >/dev/null
config=$(find "$prefix" -name tandem-config.cmake)

source tools/set_up_ccache.sh
venv=build/python/$("$python" -c 'import sys; print(f"venv-{sys.implementation.cache_tag}")')
pip=("$venv/bin/python" -m pip)
"${pip[@]}" --version >/dev/null 2>&1 || "$python" -m venv "$venv"
tools=('scikit-build-core>=0.11' 'nanobind>=3.0')
if ! "$venv/bin/python" -c 'import nanobind, scikit_build_core' 2>/dev/null && ! "${pip[@]}" install --quiet --retries 1 --timeout 20 "${tools[@]}"; then
  echo "build_wheel.sh: pip cannot install ${tools[*]}: is PyPI reachable?" >&2
  exit 77
fi
rm -rf build/wheel
"${pip[@]}" wheel . --quiet --no-deps --no-build-isolation --wheel-dir build/wheel --config-settings "cmake.define.tandem_DIR=$(dirname "$config")"
echo build/wheel/*.whl
