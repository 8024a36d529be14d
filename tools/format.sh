#!/usr/bin/env bash
# Formats all sources in place: clang-format, and comments and documentation within their column limits.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
mapfile -t sources < <(find include src harness cli tests examples bench python -name '*.[ch]pp')
clang-format-14 -i "${sources[@]}"
python3 tools/wrap_comments.py "${sources[@]}"
clang-format-14 -i "${sources[@]}"
mapfile -t pages < <(find . bench -maxdepth 1 -name '*.md'; find docs -name '*.md')
python3 tools/wrap_docs.py "${pages[@]}"
