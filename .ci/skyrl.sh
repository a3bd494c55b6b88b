#!/usr/bin/env bash
# Optional: a second trainer, live. SkyRL's Tinker API server (JAX, CPU) trains the lab agent on real tool episodes, watched through
# adapters/tinker, and SkyRL's own RayPPOTrainer trains it through adapters/skyrl, in an environment of its own (2.9 GB). Not part of .ci/run.
# `bash .ci/skyrl.sh --run [--steps N] [--stale-from N] [--declared] [--out FOLDER]` trains alone (reproduce/tinker_lab).
set -euo pipefail
cd "$(dirname "$0")/.."
export OMP_NUM_THREADS=1 HF_HUB_OFFLINE=1 TOKENIZERS_PARALLELISM=false
venv=.venv-skyrl
if [ ! -f "$venv/.ready" ] || [ .ci/skyrl.sh -nt "$venv/.ready" ]; then
  rm -rf "$venv"
  python3 -m venv "$venv"
  pip=("$venv/bin/python" -m pip install --quiet)
  "${pip[@]}" --upgrade pip
  "${pip[@]}" torch==2.13.0
  # SkyRL 0.3.0's server speaks JSON; clients from 0.38 on ask for protobuf alone
  "${pip[@]}" 'skyrl[tinker,jax]==0.3.0' tinker==0.22.0 jax==0.10.2 flax==0.12.8 'pytest>=9'
  # what skyrl.train.trainer imports; its extra skyrl-train adds flash-attn and vLLM, which need a GPU
  "${pip[@]}" loguru tqdm tensordict jaxtyping hydra-core==1.3.2 ray==2.56.0 torchdata func_timeout skyrl-gym==0.4.0 \
    polars s3fs accelerate tensorboard wandb pybind11
  "${pip[@]}" --editable '.[tools]'
  site=$("$venv/bin/python" -c 'import sysconfig; print(sysconfig.get_path("platlib"))')
  # pydantic refuses typing.TypedDict before Python 3.12, and SkyRL's API uses it
  echo 'import typing, typing_extensions; typing.TypedDict = typing_extensions.TypedDict' >"$site/zz_typeddict.pth"
  touch "$venv/.ready"
fi
if [ "${1:-}" = --run ]; then
  exec "$venv/bin/python" -m reproduce.tinker_lab "${@:2}"
fi
"$venv/bin/python" -m pytest -q -m skyrl tests/adapters/test_skyrl_trainer.py tests/adapters/test_skyrl_live.py
