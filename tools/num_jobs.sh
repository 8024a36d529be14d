#!/usr/bin/env bash
# How many compilers to run at once: one a usable core, but no more than fit into memory at 1.5 GiB each.
set -euo pipefail
cores=$(nproc)
available_kib=$(awk '/^MemAvailable:/ { print $2 }' /proc/meminfo)
# A container may have less than the machine.
if [[ -r /sys/fs/cgroup/memory.max && "$(</sys/fs/cgroup/memory.max)" != max ]]; then
  limit_kib=$(( ($(</sys/fs/cgroup/memory.max) - $(</sys/fs/cgroup/memory.current)) / 1024 ))
  (( limit_kib < available_kib )) && available_kib=$limit_kib
fi
fit=$(( available_kib / (1536 * 1024) ))
jobs=$(( fit < cores ? fit : cores ))
echo $(( jobs < 1 ? 1 : jobs ))
