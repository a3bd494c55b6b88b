#!/usr/bin/env bash
# Makes the peers' own virtual environment, at the versions the bench was written against.
#     bash benchmarks/peers/setup.sh [FOLDER]      (default out/peers-venv)
set -euo pipefail
cd "$(dirname "$0")/../.."
folder="${1:-out/peers-venv}"
test -x "$folder/bin/python" || "${PYTHON:-python3}" -m venv "$folder"
"$folder/bin/python" -m pip install --quiet rldoctor==0.2.0 rlprobe==0.1.0 rlwatch==0.5.1
"$folder/bin/python" -c 'import rl_doctor, rlprobe, rlwatch'
echo "export TRIMTAB_PEERS_PYTHON=$(cd "$folder" && pwd)/bin/python"
