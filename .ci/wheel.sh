#!/usr/bin/env bash
# The wheel installs into an empty environment without torch, and the commands work there on a recorded run.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
.venv/bin/python -m build --wheel --outdir "$work" . >"$work/build.log" 2>&1 || { cat "$work/build.log"; exit 1; }
.venv/bin/python - "$work/run" <<'PY'
import sys
from pathlib import Path
sys.path.insert(0, ".")
from tests.support import write_run
write_run(Path(sys.argv[1]), steps=30)
PY
python3 -m venv "$work/venv"
"$work/venv/bin/python" -m pip install --quiet "$work"/trimtab-*.whl
"$work/venv/bin/python" -c "import importlib.util as u, sys; sys.exit(any(u.find_spec(n) for n in ('torch', 'transformers')))"
cd "$work"
venv/bin/trimtab --help >/dev/null
venv/bin/trimtab diagnose run --json >diagnosis.json
venv/bin/trimtab report run -o report.html
venv/bin/python -c "
import json, os
assert json.load(open('diagnosis.json'))['verdict'] == 'healthy'
assert 50_000 < os.path.getsize('report.html') < 1_000_000
print('wheel: ok,', os.path.getsize('report.html'), 'bytes of report')"
