"""Judge with evalplus.eval.untrusted_check, one function at a time, as its data set has one."""

import pathlib
import sys

sys.path[:0] = pathlib.Path("checker/packages.txt").read_text().split()
from evalplus.eval import PASS, untrusted_check  # noqa: E402

CASES = {
    "total": ([[[1, 2, 4]], [[]], [[-3, 3, 5, 1]]], [7, 0, 6]),
    "middle": ([[[3, 9, 5]], [[7]], [[1, 8, 2, 6, 4]]], [5, 7, 4]),
}
code = pathlib.Path("workspace/solution.py").read_text()
passed = [
    untrusted_check("humaneval", code, inputs, name, expected, 0, [0.1] * len(inputs), fast_check=True)[0]
    for name, (inputs, expected) in CASES.items()
]
print("\nreward:", float(passed == [PASS, PASS]))
