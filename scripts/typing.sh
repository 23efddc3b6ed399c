#!/bin/sh
# Link the folders of the package below build/typing/roomscout, where mypy finds them under the names that code imports.
set -eu
cd "$(dirname "$0")/.."
rm -rf build/typing
mkdir -p build/typing/roomscout
for each in agent analysis benchmarks data envs models rendering runs training roomscout/*.py; do
    ln -s "$PWD/$each" build/typing/roomscout/
done
