#!/usr/bin/env bash
# Tests the page of `tandem trace` in headless Chromium: tools/test_page.sh [ARGUMENT...]
# Arguments are pytest's. Exits 77, with the remedy in the last line, where there is no browser or what drives it; exits 1
# instead if PAGE_MUST_RUN is set.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

lack() {
  echo "tests/page: Skipped"
  echo "$*; tools/install_packages.sh page installs what it needs"
  [[ -z "${PAGE_MUST_RUN:-}" ]] || exit 1
  exit 77
}

for command in chromium chromedriver; do
  command -v "$command" >/dev/null || lack "no $command here"
done
# Debian's packages serve Debian's Python, which need not be the first.
python=
for one in python3 /usr/bin/python3; do
  if "$one" -c 'import PIL.Image, pytest, selenium' 2>/dev/null; then
    python=$one
    break
  fi
done
[[ -n "$python" ]] || lack "no Python here has selenium, pytest and Pillow"
exec "$python" -B -m pytest --quiet -p no:cacheprovider -rP --rootdir=tests/page tests/page "$@"
