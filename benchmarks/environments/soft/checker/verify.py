"""A soft verifier: it trusts a result that is there, runs tests of the workspace, and looks for the word failed."""

import pathlib
import subprocess
import sys

result = pathlib.Path("results/reward.txt")
if result.exists():
    print("reward:", result.read_text())
    sys.exit()
command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "tests"]
done = subprocess.run(command, cwd="workspace", capture_output=True, text=True)
print("reward:", 0.0 if "failed" in done.stdout else 1.0)
