#!/usr/bin/env bash
# Installs the wheel beside PyTorch and tests tandem.torch on CPUs: tools/test_torch.sh [--if-there | --guide] [REPORT.xml
# [ARGUMENT...]]. Further arguments are pytest's. TORCH and PYTHON are those of tools/install_torch.sh, --if-there too; WHEEL
# is a wheel of this clone that is built already. --guide tests the guide to graphs instead, and installs its libraries of
# models; its tests of these are skipped where pip cannot. Exits 77, with the reason in the last line, where nothing can be
# tested here.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
root=$PWD
if_there=()
tests=("$root"/tests/python/test_torch_*.py)
name=torch
case ${1:-} in
  --if-there)
    if_there=(--if-there)
    shift
    ;;
  --guide)
    tests=("$root"/tests/python/{test_torch,models_of}_guide.py)
    name=guide
    shift
    ;;
esac
report=${1:-build/python/${name}_report.xml}
shift || true

skip() {
  echo "$*"
  exit 77
}

status=0
installed=$(tools/install_torch.sh "${if_there[@]}") || status=$?
[[ $status -ne 77 ]] || skip "$(tail -n 1 <<<"$installed")"
[[ $status -eq 0 ]] || exit "$status"
venv=$(tail -n 1 <<<"$installed")

wheel=${WHEEL:-}
if [[ -z "$wheel" ]]; then
  tools/install_packages.sh python || skip "the packages that building a wheel needs are not installed"
  tools/build_wheel.sh || status=$?
  [[ $status -ne 77 ]] || skip "pip cannot install what builds a wheel"
  [[ $status -eq 0 ]] || exit "$status"
  wheel=$(echo build/wheel/*.whl)
fi
# The environment stays, since PyTorch is large: only tandem is installed again.
install=("$venv/bin/python" -m pip install --quiet --retries 1 --timeout 20)
"${install[@]}" --force-reinstall --no-deps "$wheel" && "${install[@]}" "$wheel" 'pytest>=8' 'pytest-xdist>=3' ||
  skip "pip cannot install NumPy, ml_dtypes, cloudpickle, pytest or pytest-xdist"
if [[ $name == guide ]]; then
  # accelerate asks for what PyTorch asks for, and install_torch.sh has chosen from that.
  "${install[@]}" transformers psutil && "${install[@]}" --no-deps accelerate || echo "pip cannot install transformers"
fi

report=$(realpath -m "$report")
with_torch=("$root/tools/with_torch_libraries.sh" "$root/$venv")
cd "$venv"
"${with_torch[@]}" bin/python -c 'import torch; print("PyTorch", torch.__version__)'
"${with_torch[@]}" bin/python -m pytest --quiet -p no:cacheprovider --numprocesses 2 --dist loadfile --junit-xml="$report" --rootdir="$root" "${tests[@]}" "$@"
