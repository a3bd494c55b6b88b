"""Which rank is slow, in which phase, since when; memory that runs out; the one slow episode.

    rows of one step, by rank -> MachineJudge -> readings (slices `rank/<r>` and `rank/<r>/<phase>`)

phase_excess     log of a rank's seconds over the median of the other ranks'
noise_scale      long-run standard deviation of that, robust to spikes and shifts
straggler_judge  sums evidence by rank and phase: who is slow, since when, by how much
memory_forecast  steps until memory runs out, and ranks that hold more than others
episode_hold     seconds that a step waits for one last episode
perf_scores      relative and individual scores as NVIDIA's resiliency extension defines them
machine_judge    all of it, from rows of steps

Pure numpy; a world of one rank is judged against its own past alone.
"""

from trimtab.distributed.stragglers.machine_judge import MachineJudge
from trimtab.distributed.stragglers.perf_scores import individual_scores, relative_scores
from trimtab.distributed.stragglers.straggler_judge import SlowPhase, StragglerJudge

__all__ = ["MachineJudge", "SlowPhase", "StragglerJudge", "individual_scores", "relative_scores"]
