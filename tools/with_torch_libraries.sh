#!/usr/bin/env bash
# Runs a command with the libraries that PyTorch in a virtual environment loads: tools/with_torch_libraries.sh VENV COMMAND...
set -euo pipefail
venv=$(realpath "$1")
shift
LD_LIBRARY_PATH=$(find "$venv/lib" -path '*/nvidia/*' -name lib -type d -printf '%p:')${CUDA_HOME:-/usr/local/cuda}/lib64:${LD_LIBRARY_PATH:-}
export LD_LIBRARY_PATH
exec "$@"
