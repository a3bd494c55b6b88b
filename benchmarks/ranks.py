"""What does watching many ranks cost, and does it name the rank that stops? Figures of the merger and of the faults.

python benchmarks/ranks.py [--json] [--quick] [--run] [--part NAME]

Each part is a module beside this one with `figures(quick)`; `--run` measures again what a part keeps in benchmarks/results, where it
has `measure`.
"""

from __future__ import annotations

import argparse
import importlib
import json
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

PARTS = {
    "merging": "benchmarks.ranks_merging",
    "stragglers": "benchmarks.ranks_stragglers",
    "processes": "benchmarks.straggler_processes",
    "faults": "benchmarks.ranks_faults",
}
"""Name of a part -> its module."""


def main() -> None:
    """Print one object whose `figures` are flat."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true", help="print one object, which it always does")
    parser.add_argument("--quick", action="store_true", help="a small part of everything")
    parser.add_argument("--run", action="store_true", help="measure again, and write benchmarks/results")
    parser.add_argument("--part", choices=sorted(PARTS), action="append", help="only this part; repeatable")
    options = parser.parse_args()
    start, figures = time.monotonic(), {}
    for name in options.part or PARTS:
        module = importlib.import_module(PARTS[name])
        if options.run and hasattr(module, "measure"):
            module.measure()
        figures |= module.figures(quick=options.quick)
    print(json.dumps({"figures": figures, "seconds": round(time.monotonic() - start, 1)}))


if __name__ == "__main__":
    main()
