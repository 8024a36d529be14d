#!/usr/bin/env bash
# An nvcc whose objects are PTX, for ccache, which keeps what -c makes: NVCC=/path/to/nvcc tests/nvcc_to_ptx.sh FLAG... -c FILE.cu
for flag; do
  [[ "$flag" == -c ]] && flags+=(-ptx) || flags+=("$flag")
done
exec "$NVCC" "${flags[@]}"
