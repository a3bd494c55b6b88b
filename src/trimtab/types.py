"""Records that cross trimtab's packages. A newcomer reads this file first.

    trainer -> [capture] TokenBatch -> [measure] Reading -> [detect] Alarm -> Incident
            -> [guard] Action -> trainer

Shape letters: B sequences, N tokens of a batch, packed one sequence after the other.
Log-probabilities are natural logarithms (nats), never above zero.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

from trimtab.typing import Bool, Float32, Float64, Int16, Int64, UInt8

LOGPROB_COLUMNS = ("rollout_logprobs", "old_logprobs", "logprobs", "prox_logprobs", "ref_logprobs")
"""The five log-probability columns: mu, pi_old, pi_theta, proximal policy, frozen reference."""

PHASES = ("text", "near", "later")
"""Value of `TokenBatch.phase`: before the first tool result; within k tokens after one; later after one."""

Severity = Literal["info", "warning", "critical"]
Status = Literal["ok", "not judged yet", "not observed"]


@dataclass(frozen=True)
class Convention:
    """How a log-probability column was computed: were temperature and top-p applied before the logarithm?

    Two columns may be subtracted only when their conventions are equal. 1.0 and 1.0 are the raw model.
    """

    temperature: float = 1.0
    top_p: float = 1.0


@dataclass(frozen=True, eq=False)
class TokenBatch:
    """One batch as it was trained on; build it with `trimtab.capture.token_batch`, which validates.

    Per token (N,), packed: `loss_mask` marks tokens that receive gradient; a tool's own tokens are present
    with `loss_mask` False. Per sequence (B,): `lengths` sums to N. A column that is None is absent, and
    `absent` may say why.
    """

    lengths: Int64  # (B,)
    loss_mask: Bool  # (N,)
    phase: UInt8  # (N,) index into PHASES
    tool: UInt8  # (N,) 0: none yet; i: tool_names[i - 1]; len(tool_names) + 1: other
    turn: Int64  # (N,) 1 before the first tool result, then counted up at each result
    source: UInt8  # (N,) 0: none declared; i: source_names[i - 1]; len(source_names) + 1: other
    episode_id: Int64  # (B,) the same number whenever the same trajectory is seen again
    rollout_logprobs: Float32 | None = None  # (N,) mu: the engine that sampled the token
    old_logprobs: Float32 | None = None  # (N,) pi_old: the trainer's engine at the sampling weights
    logprobs: Float32 | None = None  # (N,) pi_theta: the trainer's engine now
    prox_logprobs: Float32 | None = None  # (N,) the proximal policy
    ref_logprobs: Float32 | None = None  # (N,) the frozen reference
    ref_scored: Bool | None = None  # (B,) sequences the reference scored; None: all of them
    advantages: Float32 | None = None  # (N,)
    entropy: Float32 | None = None  # (N,) nats, of pi_theta's next-token distribution
    token_ids: Int64 | None = None  # (N,)
    routed_experts: Int16 | None = None  # (N, L, K) the trainer's expert of each layer; -1: no record
    rollout_routed_experts: Int16 | None = None  # (N, L, K) those of the engine that sampled
    policy_version: Int64 | None = None  # (N,) version of the weights that sampled the token
    current_version: int | None = None  # version of the weights that are trained now
    clip_range: tuple[float, float] | None = None  # the trainer's epsilons, below and above 1
    reward: Float64 | None = None  # (B,)
    reward_parts: Mapping[str, Float64] = field(default_factory=dict)  # each (B,)
    group: Int64 | None = None  # (B,)
    stop_reason: tuple[str, ...] | None = None  # (B,)
    tool_names: tuple[str, ...] = ()
    source_names: tuple[str, ...] = ()
    # column -> how its log-probs were computed
    conventions: Mapping[str, Convention] = field(default_factory=dict)
    reference: str = ""  # which policy ref_logprobs are of, in words
    # pairs of columns that are one policy object: ratio zero by construction
    same: frozenset[frozenset[str]] = frozenset()
    absent: Mapping[str, str] = field(default_factory=dict)  # column -> why it is not there

    @property
    def num_sequences(self) -> int:
        """B."""
        return int(self.lengths.size)

    @property
    def num_tokens(self) -> int:
        """N, the tool's own tokens included."""
        return int(self.loss_mask.size)


class Window(NamedTuple):
    """Steps first..last, both included."""

    first: int
    last: int


@dataclass(frozen=True)
class Reading:
    """One measured quantity of one slice over one window of steps."""

    key: str  # a row of `trimtab.catalog`
    step: int
    window: Window
    slice: str
    value: float  # nan unless `status` is "ok", and then nan only if the state holds nothing
    n_tokens: int
    n_trajectories: int
    low: float = float("nan")  # lower end of the 95 % interval bootstrapped by trajectory, nan where none
    high: float = float("nan")  # upper end
    reference: str = ""  # the policy in the denominator, and where it came from
    excluded: Mapping[str, int] = field(default_factory=dict)  # reason -> how many were left out
    status: Status = "ok"
    reason: str = ""
    state: Any = field(default=None, repr=False, compare=False)


@dataclass(frozen=True)
class Alarm:
    """A change that should not have happened, with its evidence and advice."""

    rule: str
    step: int  # when the rule fired
    since: int  # first step of the evidence
    severity: Severity
    slice: str
    readings: tuple[Reading, ...]  # the evidence
    bound: float  # what the reading had to stay under (or over)
    why: str  # why it matters
    advice: str  # what to do first
    reference: str  # source of the rule
    hidden: bool = False  # no aggregate rule of the same budget had fired, and one was ready to
    cleared: int | None = None  # step at which it ended
    # (aggregate rules ready when it was raised, those with values), where known
    heard: tuple[int, int] | None = None


@dataclass(frozen=True)
class Cause:
    """A hypothesis of a cause. `test` would tell it from the others."""

    name: str
    evidence_for: tuple[str, ...]
    evidence_against: tuple[str, ...]
    test: str

    @property
    def score(self) -> int:
        """Pieces of evidence for it less those against it."""
        return len(self.evidence_for) - len(self.evidence_against)


@dataclass(frozen=True)
class Incident:
    """One trouble. `alarms` in the order they came; `causes` with evidence for them, the likeliest first."""

    since: int
    slice: str
    severity: Severity
    alarms: tuple[Alarm, ...]
    causes: tuple[Cause, ...]


Lever = Literal[
    "lr_scale", "kl_coef", "token_is_cap", "sequence_is_cap", "clip_range", "max_lag", "tool_output_tokens",
    "tool_broken_gradient", "tool_gradient", "tool_offer",
]  # fmt: skip
"""What a guard may turn; `trimtab.guard.controls` gives each its unit and its neutral value."""


@dataclass(frozen=True)
class SetLever:
    """Turn a lever from `before` to `after`, from the next step on.

    `before` and `after` are the values in force. Where another policy asks for a tighter one, they are equal.
    """

    lever: Lever
    slice: str  # `all`, or the slice it is turned for
    before: float
    after: float
    because: Incident
    policy: str  # the policy of the guard that chose it
    note: str = (
        ""  # what a reader should know: a lever that is not offered, a tighter value of another policy
    )


@dataclass(frozen=True)
class SkipUpdate:
    """Leave out the optimizer step that was about to be made."""

    grad_norm: float  # NaN and inf as they were
    bound: float
    because: Incident
    policy: str
    note: str = ""


@dataclass(frozen=True)
class Rollback:
    """Return to the stable state of `to_step`: weights, optimizer, data order; the sampler follows."""

    to_step: int
    because: Incident
    policy: str
    note: str = ""


@dataclass(frozen=True)
class Stop:
    """End the run after this step, with its last checkpoint."""

    because: Incident
    policy: str
    note: str = ""


@dataclass(frozen=True)
class Undo:
    """Take back what a policy asked of a lever: the trouble that asked for it has passed."""

    lever: Lever
    slice: str
    before: float  # in force until now
    after: (
        float  # in force from the next step on: the tightest of what other policies ask, or the trainer's own
    )
    because: Incident
    policy: str
    note: str = ""


@dataclass(frozen=True)
class Warn:
    """Change nothing, and say what a person should do: no lever helps, or none is offered."""

    because: Incident
    policy: str
    note: str


@dataclass(frozen=True)
class QuarantineTool:
    """Change the fraction of groups that a tool is trained on, or offered to."""

    tool: str
    lever: Lever  # `tool_broken_gradient`, `tool_gradient`: masked; `tool_offer`: no longer offered
    before: float  # fraction of groups in [0, 1], in force until now
    after: float  # from the next step on
    because: Incident
    policy: str
    note: str = ""


Action = SetLever | SkipUpdate | Rollback | Stop | Undo | Warn | QuarantineTool
"""What a guard does. Each names its incident, its policy and what stood before."""
