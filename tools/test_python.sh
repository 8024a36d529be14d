#!/usr/bin/env bash
# Builds the wheel, installs it in a fresh virtual environment and tests it: tools/test_python.sh [REPORT.xml [ARGUMENT...]]
# Further arguments are pytest's. Exits 77, with the reason in the last line, where that cannot be done here.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
python=${PYTHON:-python3}
report=${1:-build/python/report.xml}
shift || true

skip() {
  echo "$*"
  exit 77
}

tools/install_packages.sh python || skip "the packages that building a wheel needs are not installed"
status=0
tools/build_wheel.sh || status=$?
[[ $status -ne 77 ]] || skip "pip cannot install what builds a wheel"
[[ $status -eq 0 ]] || exit "$status"
venv=build/python/test-venv
"$python" -m venv --clear "$venv"
"$venv/bin/python" -m pip install --quiet --retries 1 --timeout 20 build/wheel/*.whl 'pytest>=8' 'pytest-xdist>=3' || skip "pip cannot install NumPy, ml_dtypes, cloudpickle, pytest or pytest-xdist"
"$venv/bin/python" -m pip install --quiet --retries 1 --timeout 20 'matplotlib>=3.8' || echo "pip cannot install matplotlib: tests that draw charts are skipped"
# From another folder, so that nothing is imported from the source tree.
root=$PWD
report=$(realpath -m "$report")
cd "$venv"
PATH=$PWD/bin:$PATH bin/python -m pytest --quiet -p no:cacheprovider --numprocesses 2 --dist loadfile --junit-xml="$report" --rootdir="$root" "$root/tests/python" "$@"
