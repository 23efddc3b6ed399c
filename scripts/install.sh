#!/bin/sh
# Install system libraries, then the given requirements files into .venv, which is created if it does not exist.
#   sh scripts/install.sh requirements.txt                  versions of constraints.txt
#   CONSTRAINTS= sh scripts/install.sh requirements.txt     newest versions, in a new .venv
#   CONSTRAINTS=my.txt PYTHON=python3.12 sh scripts/install.sh requirements.txt
set -eu
cd "$(dirname "$0")/.."
PYTHON=${PYTHON:-python3}
CONSTRAINTS=${CONSTRAINTS-constraints.txt}

[ "$(uname)" = Linux ] || {
    echo "This script installs on Linux only. Elsewhere: pip install -r $1" >&2
    exit 1
}

has_library() { { ldconfig -p 2>/dev/null || /sbin/ldconfig -p; } | grep -q "$1"; }
has_file() { for file in "$@"; do [ -e "$file" ] && return 0; done; return 1; }

missing=""
optional=""
need() { missing="$missing $1"; }
want() { optional="$optional $1"; }
has_library 'libusb-1\.0\.so\.0' || need libusb-1.0-0      # open3d
has_library 'libGL\.so\.1' || need libgl1                  # open3d
has_library 'libX11\.so\.6' || need libx11-6               # open3d
has_library 'libgomp\.so\.1' || need libgomp1              # open3d
has_library 'libEGL\.so\.1' || need libegl1                # open3d, --renderer pyrender
has_library 'libudev\.so\.1' || need libudev1              # open3d
has_library 'libidn2\.so\.0' || need libidn2-0             # open3d
has_library 'libEGL_\(mesa\|nvidia\)' || want libgl1-mesa-dri   # --renderer pyrender: a driver behind libegl1
has_library 'libXrender\.so\.1' || want libxrender1           # --renderer pyrender: pyglet
case "$*" in *dev*) has_file /usr/bin/chromium /usr/bin/google-chrome || want chromium ;; esac   # tests of reports

through_apt() {   # as root, or through sudo if it needs no password
    command -v apt-get >/dev/null || return 1
    if [ "$(id -u)" = 0 ]; then by=env; elif sudo -n true 2>/dev/null; then by=sudo; else return 1; fi
    $by apt-get update -qq && $by env DEBIAN_FRONTEND=noninteractive apt-get install -qq -y "$@"
}
if [ -n "$missing$optional" ] && ! through_apt $missing $optional; then
    if [ -n "$missing" ]; then
        echo "System libraries are missing. Install them (Debian package names), then try again:" >&2
        echo "  sudo apt-get install -y$missing$optional" >&2
        exit 1
    fi
    echo "The renderer pyrender and the tests of reports need these (Debian package names):" >&2
    echo "  sudo apt-get install -y$optional" >&2
fi

"$PYTHON" -c 'import sys; sys.exit(sys.version_info < (3, 11))' || {
    echo "Python 3.11 or later is required; select one with PYTHON=/path/to/python make ..." >&2
    exit 1
}
[ -x .venv/bin/pip ] || "$PYTHON" -m venv .venv || {
    echo "Cannot create a virtual environment. Run this, then try again:" >&2
    echo "  sudo apt-get install -y python3-venv" >&2
    exit 1
}
[ -z "$CONSTRAINTS" ] || [ -r "$CONSTRAINTS" ] || {
    echo "Cannot read $CONSTRAINTS; CONSTRAINTS takes a file of versions, or nothing for the newest" >&2
    exit 1
}
# uv installs in a third of pip's time; it does not read the index that pip is configured with.
if .venv/bin/pip install -q --disable-pip-version-check uv 2>/dev/null; then
    index=$(.venv/bin/pip config get global.index-url 2>/dev/null || true)
    index=${PIP_INDEX_URL-$index}
    [ -z "$index" ] || export UV_DEFAULT_INDEX="${UV_DEFAULT_INDEX-$index}"
    install() { .venv/bin/uv pip install -q --python .venv/bin/python "$@"; }
else
    echo "pip cannot get uv from its package index: installing with pip, which takes longer" >&2
    install() { .venv/bin/pip install -q --disable-pip-version-check "$@"; }
fi
if [ "$(uname -m)" = x86_64 ] && .venv/bin/pip show -q open3d 2>/dev/null; then
    .venv/bin/pip uninstall -q -y open3d open3d-cpu   # open3d-cpu has the same files, so both cannot be installed
fi
for file in "$@"; do
    echo "Installing $file into .venv with ${CONSTRAINTS:-the newest versions} (several GB, a few minutes, once)"
    install ${CONSTRAINTS:+-c "$CONSTRAINTS"} -r "$file"
done
