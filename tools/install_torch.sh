#!/usr/bin/env bash
# Installs PyTorch in a virtual environment of the build folder, for the tests of tandem.torch: tools/install_torch.sh
# TORCH names PyTorch's version, PYTHON the interpreter. The last line is the environment's folder. Exits 77, with the
# reason in the last line, where PyTorch cannot be had.
#   --if-there   installs nothing: the folder of an environment that is complete, or of one over a Python that has PyTorch
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
python=${PYTHON:-python3}
version=${TORCH:-2.11.0}
toolkit=${CUDA_HOME:-/usr/local/cuda}
venv=build/python/torch-venv-$("$python" -c 'import sys; print(sys.implementation.cache_tag)')-$version
install=("$venv/bin/python" -m pip install --quiet --retries 1 --timeout 20)

skip() {
  echo "$*"
  exit 77
}
imports() {
  tools/with_torch_libraries.sh "$venv" "$venv/bin/python" -c 'import torch' 2>/dev/null
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
  if [[ "${1:-}" == --if-there ]]; then
    "$python" -c 'import torch' 2>/dev/null || skip "PyTorch is not installed: make test-torch installs it"
    "$python" -m venv --clear --system-site-packages "$venv"
  else
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
  fi
  touch "$venv/complete"
fi
echo "$venv"
