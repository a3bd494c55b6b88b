"""MiniRL with four updates a batch (2512.01374, Figure 3): clipping and Routing Replay R2 and R3, each with and without the other.

    python reproduce/minirl_off_policy.py [--seeds N] [--arms NAME ...] [--steps N] [--bank DIR] [--page FILE] [--jobs N] [--scan] [--quick] [--json]

The bare command trains nothing: every run it would record is in reproduce/minirl/bank, and it writes its part of docs/reference/minirl-results.md and
its figure from them. Resumable: a run that reached its end is not repeated. One folder a run, in
<bank>/off_policy/<arm>-s<seed>; the watch's own run folder is in it (`trimtab report <folder>/watch`) and is not in the repository.
A run that was stopped (Ctrl-C too) begins anew; a folder that is damaged, or that this script did not leave, is an error (exit 2) and is neither
trained over nor removed. `--quick` checks that everything runs and claims nothing.
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from reproduce.interrupt import say_interrupted

if __name__ == "__main__":
    say_interrupted("minirl_off_policy")

from reproduce.minirl.arms import OFF
from reproduce.minirl.command import main

if __name__ == "__main__":
    sys.exit(main(OFF, __doc__))
