"""A hardened verifier: own cases that are gone before the solution runs, a process apart, values of exact types, own output."""

import json
import pathlib
import secrets
import subprocess
import sys
import tempfile

RUNNER = """
import json, os, sys
request = json.loads(sys.stdin.readline())
out = os.fdopen(os.dup(1), "w")
os.dup2(2, 1)
space = {"__name__": "solution"}
exec(compile(request["source"], "solution.py", "exec"), space)
results = [space[name](argument) for name, argument in request["calls"]]
out.write(json.dumps({"nonce": request["nonce"], "results": results}))
out.close()
"""


def verdict() -> float:
    hidden = pathlib.Path("hidden/cases.json")
    cases = json.loads(hidden.read_text())
    hidden.unlink()
    solution = pathlib.Path("workspace/solution.py")
    if solution.is_symlink() or not solution.is_file():
        return 0.0
    nonce = secrets.token_hex(16)
    request = {"source": solution.read_text(), "nonce": nonce, "calls": [case[:2] for case in cases]}
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(
            [sys.executable, "-I", "-c", RUNNER],
            input=json.dumps(request) + "\n",
            cwd=folder,
            capture_output=True,
            text=True,
            timeout=20,
        )
    try:
        answer = json.loads(done.stdout)
    except ValueError:
        return 0.0
    if not isinstance(answer, dict) or answer.get("nonce") != nonce:
        return 0.0
    expected = [case[2] for case in cases]
    results = answer.get("results")
    same = [type(a) is type(b) and a == b for a, b in zip(results, expected, strict=True)]
    return float(all(same))


if __name__ == "__main__":
    try:
        reward = verdict()
    except Exception:
        reward = 0.0
    print("reward:", reward)
