"""Judge with skyrl_gym.envs.lcb.livecodebench.compute_score, a function at a time, as its data has one."""

import json
import pathlib
import sys

sys.path[:0] = pathlib.Path("checker/packages.txt").read_text().split()
from skyrl_gym.envs.lcb.livecodebench import compute_score  # noqa: E402

CASES = {
    "total": [([1, 2, 4], 7), ([], 0), ([-3, 3, 5, 1], 6)],
    "middle": [([3, 9, 5], 5), ([7], 7), ([1, 8, 2, 6, 4], 4)],
}
code = pathlib.Path("workspace/solution.py").read_text()
answer = f"```python\n{code}\n```"
paid = []
for name, cases in CASES.items():
    tests = [
        {"input": json.dumps(numbers), "output": json.dumps(want), "testtype": "functional",
         "metadata": {"func_name": name}}
        for numbers, want in cases
    ]  # fmt: skip
    paid.append(float(compute_score(answer, tests)[1]))
print("\nreward:", min(paid))
