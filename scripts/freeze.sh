#!/bin/sh
# Write the versions installed in .venv to constraints.txt.
set -eu
cd "$(dirname "$0")/.."
python_version=$(.venv/bin/python -c 'import platform; print(platform.python_version())')
{
    echo "# Exact versions that CI installs and runs the tests with: Python $python_version, $(uname -sm), $(date -u +%Y-%m-%d)."
    echo "# scripts/install.sh applies them; for the newest versions: make clean; CONSTRAINTS= make demo"
    echo "# To refresh: make clean; CONSTRAINTS= make test && make check && make constraints"
    echo "# NVIDIA's CUDA packages are left out: torch itself requires exact versions of them."
    .venv/bin/pip freeze --disable-pip-version-check 2>/dev/null | grep -E '^[A-Za-z0-9._-]+==' \
        | grep -vP '^(nvidia-(?!ml-py)|cuda-)' | LC_ALL=C sort -f
} > constraints.new
mv constraints.new constraints.txt
