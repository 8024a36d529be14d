#!/usr/bin/env bash
# Installs the Debian packages that a target needs and this machine lacks: tools/install_packages.sh build|lint|docs|python|page|hosts
# As root, or through sudo if that asks no password; else it prints the line to run and exits 4. Installs nothing, and
# touches no package list, when everything is there.
set -euo pipefail

# "command:package" where the command will do, however it was installed; ":package" where it is headers.
build_needs=(g++:g++ cmake:cmake ninja:ninja-build ccache:ccache make:make pkg-config:pkg-config python3:python3
  :libfmt-dev :libspdlog-dev :nlohmann-json3-dev :libcli11-dev :libexpected-dev :libgtest-dev
  :libboost-context-dev)
docs_needs=(python3:python3 doxygen:doxygen)
# A browser, and what drives it in the tests of the page of `tandem trace`.
page_needs=(chromium:chromium chromedriver:chromium-driver :python3-selenium :python3-pytest :python3-pil)
# Two hosts on this machine, for the tests of what crosses between them.
hosts_needs=(mpirun:openmpi-bin ip:iproute2)
# The formatter and the linter are pinned: their opinions differ from version to version.
lint_needs=(clang++-14:clang-14 clang-format-14:clang-format-14 clang-tidy-14:clang-tidy-14)
# Debian has them apart from its Python; any other that is installed brings them.
python_needs=(:python3-dev :python3-venv)
can_build_wheels='import ensurepip, os, sysconfig; os.stat(sysconfig.get_path("include") + "/Python.h")'

is_installed() {
  [[ "$(dpkg-query -W -f='${db:Status-Status}' "$1" 2>/dev/null)" == installed ]]
}

case "${1:-}" in
  build) needs=("${build_needs[@]}") ;;
  lint) needs=("${build_needs[@]}" "${lint_needs[@]}") ;;
  docs) needs=("${docs_needs[@]}") ;;
  page) needs=("${page_needs[@]}") ;;
  hosts) needs=("${hosts_needs[@]}") ;;
  python)
    needs=("${build_needs[@]}")
    "${PYTHON:-python3}" -c "$can_build_wheels" 2>/dev/null || needs+=("${python_needs[@]}")
    ;;
  *)
    echo "install_packages.sh: got '${1:-}', need build, lint, docs, python, page or hosts" >&2
    exit 2
    ;;
esac

if ! command -v dpkg-query >/dev/null || ! command -v apt-get >/dev/null; then
  echo "install_packages.sh: no apt-get here; what is needed, by its Debian names: ${needs[*]#*:}" >&2
  exit 0
fi

missing=()
for need in "${needs[@]}"; do
  command=${need%%:*}
  package=${need#*:}
  if [[ -n "$command" ]]; then
    command -v "$command" >/dev/null || missing+=("$package")
  else
    is_installed "$package" || missing+=("$package")
  fi
done
[[ ${#missing[@]} -eq 0 ]] && exit 0

install=(apt-get install -y --no-install-recommends "${missing[@]}")
if [[ "$(id -u)" -eq 0 ]]; then
  as_root=(env DEBIAN_FRONTEND=noninteractive)
elif command -v sudo >/dev/null && sudo -n true 2>/dev/null; then
  as_root=(sudo -n env DEBIAN_FRONTEND=noninteractive)
else
  echo "These packages are missing and this user may not install them. Run, then try again:" >&2
  echo "sudo ${install[*]}" >&2
  exit 4
fi
echo "installing: ${missing[*]}"
"${as_root[@]}" apt-get update </dev/null
"${as_root[@]}" "${install[@]}" </dev/null
