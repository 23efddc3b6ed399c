#!/bin/sh
# Make or reuse .venv with the given requirements files, after the system libraries that its packages load.
#   sh scripts/install.sh requirements.txt
set -eu
cd "$(dirname "$0")/.."
PYTHON=${PYTHON:-python3}

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
has_library 'libvulkan\.so\.1' || want libvulkan1          # --renderer open3d
has_file /usr/share/vulkan/icd.d/*.json /etc/vulkan/icd.d/*.json || want mesa-vulkan-drivers

through_apt() {   # as root, or through sudo where it asks for no password
    command -v apt-get >/dev/null || return 1
    if [ "$(id -u)" = 0 ]; then by=env; elif sudo -n true 2>/dev/null; then by=sudo; else return 1; fi
    $by apt-get update -qq && $by env DEBIAN_FRONTEND=noninteractive apt-get install -qq -y "$@"
}
if [ -n "$missing$optional" ] && ! through_apt $missing $optional; then
    if [ -n "$missing" ]; then
        echo "System libraries are missing. Have these installed (Debian's names), then try again:" >&2
        echo "  sudo apt-get install -y$missing$optional" >&2
        exit 1
    fi
    echo "Without these (Debian's names) the renderers pyrender and open3d do not work; raycast needs none:" >&2
    echo "  sudo apt-get install -y$optional" >&2
fi

"$PYTHON" -c 'import sys; sys.exit(sys.version_info < (3, 11))' || {
    echo "Python 3.11 or later is needed; say which with PYTHON=/path/to/python make ..." >&2
    exit 1
}
[ -x .venv/bin/pip ] || "$PYTHON" -m venv .venv || {
    echo "No virtual environment could be made. Run this, then try again:" >&2
    echo "  sudo apt-get install -y python3-venv" >&2
    exit 1
}
for file in "$@"; do
    echo "Installing $file into .venv (PyTorch with CUDA is several GB; minutes, once)"
    .venv/bin/pip install -q --disable-pip-version-check -r "$file"
done
