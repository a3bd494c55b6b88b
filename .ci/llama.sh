#!/usr/bin/env bash
# Optional: llama.cpp as the second engine, in an environment of its own (1.5 GB). Not part of .ci/run.
# llama-cpp-python has no wheel on PyPI: llama.cpp is compiled here, for the CPU, without what the engine does not call.
set -euo pipefail
cd "$(dirname "$0")/.."
export OMP_NUM_THREADS=1 HF_HUB_OFFLINE=1 TOKENIZERS_PARALLELISM=false
venv=.venv-llama
if [ ! -f "$venv/.ready" ] || [ .ci/llama.sh -nt "$venv/.ready" ]; then
  rm -rf "$venv"
  python3 -m venv "$venv"
  "$venv/bin/python" -m pip install --quiet --upgrade pip
  "$venv/bin/python" -m pip install --quiet torch==2.13.0
  CMAKE_BUILD_PARALLEL_LEVEL=$(nproc) CMAKE_ARGS="-DCMAKE_BUILD_TYPE=Release -DGGML_OPENMP=OFF -DLLAVA_BUILD=OFF -DLLAMA_OPENSSL=OFF \
    -DLLAMA_BUILD_TESTS=OFF -DLLAMA_BUILD_EXAMPLES=OFF -DLLAMA_BUILD_TOOLS=OFF -DLLAMA_BUILD_SERVER=OFF -DLLAMA_BUILD_APP=OFF" \
    "$venv/bin/python" -m pip install --quiet llama-cpp-python==0.3.36
  "$venv/bin/python" -m pip install --quiet --editable '.[llama]' 'peft>=0.17' 'pytest>=8.2'
  touch "$venv/.ready"
fi
"$venv/bin/python" -m pytest -q -m llama tests/training/llamacpp
