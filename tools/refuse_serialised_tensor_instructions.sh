#!/usr/bin/env bash
# Runs a compiler's command line and fails where ptxas says that it has serialised a kernel's tensor instructions
# (C7510): it is only a remark to it, which no flag makes an error, and costs half the speed.
set -uo pipefail
said=$("$@" 2>&1)
status=$?
printf '%s' "${said:+$said$'\n'}" >&2
if [[ $status -eq 0 && "$said" == *C7510* ]]; then
  echo "refused: tensor instructions were serialised" >&2
  exit 1
fi
exit $status
