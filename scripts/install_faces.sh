#!/bin/sh
# Make or complete .venv-faces/NAME, the environments of trainers whose pins clash with those of .venv or of each other.
#   sh scripts/install_faces.sh                       all
#   sh scripts/install_faces.sh openenv verifiers     these; verl has VAGEN, too
# They see the packages of .venv, so that torch is not installed again. VAGEN=DIR takes VAGEN from a checkout.
set -eu
cd "$(dirname "$0")/.."
[ -x .venv/bin/python ] || {
    echo "There is no .venv yet: run sh scripts/install.sh requirements-dev.txt first" >&2
    exit 1
}
[ -x .venv/bin/uv ] || .venv/bin/pip install -q --disable-pip-version-check uv
VAGEN=${VAGEN:-git+https://github.com/mll-lab-nu/VAGEN@2936322a6f6c02fbd29ca28e4b6ec37eefefc081}
site=$(.venv/bin/python -c 'import site; print(site.getsitepackages()[0])')

[ $# -gt 0 ] || set -- openenv verifiers verl
for name in "$@"; do
    venv=.venv-faces/$name
    [ -x "$venv/bin/python" ] || .venv/bin/python -m venv --without-pip "$venv"
    echo "$site" >"$("$venv/bin/python" -c 'import site; print(site.getsitepackages()[0])')/roomscout.pth"
    install() { .venv/bin/uv pip install -q --python "$venv/bin/python" "$@"; }
    case $name in
    openenv) install openenv==0.10.0 ;;
    verifiers) install verifiers==0.4.0 ;;
    verl)
        # What verl's agent loop imports. Its own pins would install another torch and transformers.
        install ray==2.60.0 hydra-core==1.3.8 codetiming pyvers orjson cachetools
        install --no-deps verl==0.9.1 tensordict==0.10.0 torchdata==0.11.0 "$VAGEN"
        ;;
    *)
        echo "usage: sh scripts/install_faces.sh [openenv] [verifiers] [verl], not $name" >&2
        exit 2
        ;;
    esac
    echo "Installed $venv"
done
