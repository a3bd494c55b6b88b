"""Options of a run, and what it offers and lacks by itself.

How it ends is in `run_end`, what it is in `run_identity`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from trimtab.detect.rules.rule import Rule
from trimtab.distributed.sources import MergeOptions
from trimtab.measure.state.requirements import Requirements
from trimtab.monitor.guarding import GuardArguments
from trimtab.sinks import Sink

LATEST = frozenset(
    (name, key)
    for name in ("text", "post_tool")
    for key in ("drift/p95", "drift/p99", "drift/concentration", "mismatch/p99", "mismatch/token_ess_frac", "total/p99",  # noqa: E501
                "ref_logprob/below_5_frac", "tail_ratio/p95", "lagged_drift/p95", "entropy/mean")
)  # fmt: skip
"""Slice and key of the readings offered to the user's own tracker as `trimtab/<slice>/<key>`."""

UNFED = {
    "gradient": "none given (Run.gradients)",
    "cross_scores": "none given (Run.cross_scores)",
    "lagged_drift": "no probe transcripts were scored",
}
"""What only the loop can give -> why it is not observed where the loop gives none."""


@dataclass(frozen=True)
class RunOptions:
    """Options of `open_run` that hold for the whole run; that function documents them."""

    # raise the monitor's own failures instead of recording them
    strict: bool = False
    # steps a stored histogram covers at first
    state_every: int = 5
    # token id -> text, written with the worst tokens
    token_text: Callable[[int], str] | None = None
    # what `open_run` declares of the run's episodes: required tools and files, when a task is solved
    requirements: Requirements = field(default_factory=Requirements)
    # the user's rules, beside the built-in ones
    rules: tuple[Rule, ...] = ()
    # what is done about incidents; None: nothing, and nothing is recorded as if
    guard: GuardArguments | None = None
    # where the numbers go beside the run folder
    sinks: tuple[Sink, ...] = ()
    # how the readings of the job's ranks are merged while it runs; None: each rank judges its own
    merge: MergeOptions | None = None
    # write postmortem.json when the run ends badly, also at SIGTERM
    post_mortem: bool = True

    @property
    def relays_decisions(self) -> bool:
        """Do decisions of the leading rank come to the others late, and not by a collective?"""
        return self.merge is not None and self.guard is not None and self.guard.share is None


_RANK_VARIABLES = (
    ("RANK", "WORLD_SIZE"),
    ("SLURM_PROCID", "SLURM_NTASKS"),
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
)
"""Rank and world size as torchrun and accelerate, SLURM and Open MPI set them; the first pair that is there
counts."""


def rank_of_environment(environment: Mapping[str, str]) -> tuple[int, int]:
    """Return the rank of this process and the number of processes; (0, 1) where the environment has neither.

    >>> rank_of_environment({"RANK": "2", "WORLD_SIZE": "4", "SLURM_PROCID": "0"}), rank_of_environment({})
    ((2, 4), (0, 1))
    """
    for rank, size in _RANK_VARIABLES:
        if environment.get(rank, "").isdecimal():
            count = environment.get(size, "")
            return int(environment[rank]), int(count) if count.isdecimal() else 1
    return 0, 1
