#!/usr/bin/env bash
# Optional: the verl policy losses against verl's own code, on the CPU, in an environment of its own (1.8 GB). Not part of .ci/run.
# verl's losses need few of its requirements, so it is installed without them; the newest tested is the one named here.
set -euo pipefail
cd "$(dirname "$0")/.."
export OMP_NUM_THREADS=1 HF_HUB_OFFLINE=1 TOKENIZERS_PARALLELISM=false
venv=.venv-verl
if [ ! -f "$venv/.ready" ] || [ .ci/verl.sh -nt "$venv/.ready" ]; then
  rm -rf "$venv"
  python3 -m venv "$venv"
  "$venv/bin/python" -m pip install --quiet --upgrade pip
  "$venv/bin/python" -m pip install --quiet torch==2.13.0
  "$venv/bin/python" -m pip install --quiet \
    'numpy>=2' packaging 'tensordict>=0.8,<=0.10,!=0.9.0' ray omegaconf 'transformers>=5.5.3,<5.11,!=5.6.0' codetiming orjson \
    datasets pillow 'pytest>=9'
  "$venv/bin/python" -m pip install --quiet --no-deps verl==0.9.1
  "$venv/bin/python" -m pip install --quiet --editable .
  touch "$venv/.ready"
fi
"$venv/bin/python" -m pytest -q -m verl tests/adapters/test_verl_losses.py tests/runs/metric_logs/test_consoles.py
