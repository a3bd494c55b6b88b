"""The loop API: capture, measure, detect and store, one step after the other.

opening     `open_run`: a folder, new or to be resumed
run         `Run`: observe, flush, close
isolation   the one catch-all of house rule 9
intake      what arrived in the open step
measuring   from what arrived to states, windows and readings
resume      the detectors' memory of what the folder holds
"""

from trimtab.monitor.factory import open_run
from trimtab.monitor.run import Run

__all__ = ["Run", "open_run"]
