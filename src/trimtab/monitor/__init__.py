"""The loop API: capture, measure, detect and store, one step after the other.

factory             `open_run`: a folder, new or to be resumed
run                 `Run`: observe, flush, close
run_options         options of a run, and what it offers and lacks by itself
isolation           failures of the monitor itself are recorded and do not end training
flush_arguments     the step number and the metrics of `flush`
run_end             how the run ended, recorded also at the exit of the process
run_identity        command, code, host, versions and hardware
step_buffer         what arrived in the open step
step_rows           rows of the open step on their way to the disk
batch_measurement   from what arrived to states, windows and readings
detection           from readings to alarms; the detectors' baseline after a resume
guarding            the guard of a run: decided by one rank, done by all, recorded
"""

from trimtab.monitor.factory import open_run
from trimtab.monitor.run import Run

__all__ = ["Run", "open_run"]
