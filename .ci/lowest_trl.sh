#!/usr/bin/env bash
# The adapter's contract on the lowest supported TRL (pyproject.toml), in an environment of its own. With `install` only the
# packages of others are put there, so that it can be done beside other work.
set -euo pipefail
venv=.venv-lowest-trl
if [ ! -f "$venv/.others" ] || [ .ci/lowest_trl.sh -nt "$venv/.others" ]; then
  rm -rf "$venv"
  python3 -m venv "$venv"
  "$venv/bin/python" -m pip install --quiet --upgrade pip
  "$venv/bin/python" -m pip install --quiet torch==2.13.0
  "$venv/bin/python" -m pip install --quiet \
    trl==1.2.0 transformers==5.2.0 accelerate==1.15.0 datasets==4.7.0 peft==0.21.2 jmespath==1.1.0 \
    'pytest>=9' 'pytest-xdist>=3.6'
  touch "$venv/.others"
fi
if [ "${1:-}" = install ]; then exit 0; fi
if [ ! -f "$venv/.ready" ] || [ "$venv/.others" -nt "$venv/.ready" ]; then
  "$venv/bin/python" -m pip install --quiet --editable '.[tools]'
  touch "$venv/.ready"
fi
# what does not touch TRL, and second launches of the same two ranks, run in the newest environment alone
"$venv/bin/python" -m pytest -n 2 -q tests/adapters tests/training/test_parity.py --ignore-glob='*skyrl*' --ignore-glob='*tinker*' \
  --ignore-glob='*verl*' --ignore-glob='*guard_two_ranks.py' --ignore-glob='*rows_two_ranks.py'
