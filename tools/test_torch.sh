#!/usr/bin/env bash
# Installs PyTorch beside the wheel in a virtual environment and tests tandem.torch on CPUs:
# tools/test_torch.sh [REPORT.xml [ARGUMENT...]]. Further arguments are pytest's. TORCH names PyTorch's version, PYTHON
# the interpreter, WHEEL a wheel of this clone that is built already. Exits 77, with the reason in the last line, where
# that cannot be done here.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
python=${PYTHON:-python3}
version=${TORCH:-2.11.0}
report=${1:-build/python/torch_report.xml}
shift || true
toolkit=${CUDA_HOME:-/usr/local/cuda}

skip() {
  echo "$*"
  exit 77
}

wheel=${WHEEL:-}
if [[ -z "$wheel" ]]; then
  tools/install_packages.sh python || skip "the packages that building a wheel needs are not installed"
  status=0
  tools/build_wheel.sh || status=$?
  [[ $status -ne 77 ]] || skip "pip cannot install what builds a wheel"
  [[ $status -eq 0 ]] || exit "$status"
  wheel=$(echo build/wheel/*.whl)
fi

# The environment stays, since PyTorch is large: only tandem is installed again.
venv=build/python/torch-venv-$("$python" -c 'import sys; print(sys.implementation.cache_tag)')-$version
install=("$venv/bin/pip" install --quiet --retries 1 --timeout 20)
libraries() {
  find "$PWD/$venv/lib" -path '*/nvidia/*' -name lib -type d -printf '%p:'
  echo "$toolkit/lib64:${LD_LIBRARY_PATH:-}"
}
imports() {
  LD_LIBRARY_PATH=$(libraries) "$venv/bin/python" -c 'import torch' 2>/dev/null
}
# What this version of PyTorch needs, without the toolkit, which is larger than PyTorch, and the compilers.
needs() {
  "$venv/bin/python" - <<'END'
import importlib.metadata, re
for need in importlib.metadata.requires("torch"):
    name, _, condition = need.partition(";")
    if "extra ==" not in condition and not re.match("cuda-|triton", name):
        print(name.strip())
print("mpmath", "markupsafe", "nvidia-cufile", sep="\n")
END
}
if [[ ! -e "$venv/complete" ]]; then
  "$python" -m venv --clear "$venv"
  # PyTorch's own builds for CPUs are a tenth as large as PyPI's, which load a toolkit's libraries.
  if "${install[@]}" --index-url https://download.pytorch.org/whl/cpu "torch==$version" 2>/dev/null && imports; then
    echo "PyTorch for CPUs"
  elif [[ -e "$toolkit/lib64/libcudart.so.13" ]] && "${install[@]}" --no-deps "torch==$version" &&
    needs | xargs "${install[@]}" --no-deps && imports; then
    echo "PyTorch with the libraries of $toolkit"
  else
    "${install[@]}" "torch==$version" && imports || skip "pip cannot install PyTorch $version"
  fi
  touch "$venv/complete"
fi
"${install[@]}" --force-reinstall --no-deps "$wheel" && "${install[@]}" "$wheel" 'pytest>=8' ||
  skip "pip cannot install NumPy, ml_dtypes, cloudpickle or pytest"

root=$PWD
report=$(realpath -m "$report")
LD_LIBRARY_PATH=$(libraries)
export LD_LIBRARY_PATH
cd "$venv"
bin/python -c 'import torch; print("PyTorch", torch.__version__)'
tests=("$root"/tests/python/test_torch_*.py)
bin/python -m pytest --quiet -p no:cacheprovider --junit-xml="$report" --rootdir="$root" "${tests[@]}" "$@"
