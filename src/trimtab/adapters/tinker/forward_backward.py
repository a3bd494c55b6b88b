"""One `forward_backward` of a Tinker-style loop, observed. B data.

`forward_backward` scores the data with the weights before the update that follows, so the log-probabilities
it returns are pi_theta. They are pi_old as well for data that were sampled with those weights.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from trimtab.adapters.scored_batch import scored_parts
from trimtab.adapters.tinker.datums import datum_columns, num_targets, values_of
from trimtab.errors import BatchError
from trimtab.monitor import Run

_UNSCORED = "forward_backward returned no logprobs"
_ABSENT = {
    "rollout_logprobs": "the data have no logprobs: the loop did not pass on those of the sampler",
    "old_logprobs": _UNSCORED,
    "logprobs": _UNSCORED,
    "advantages": "the data have none",
    "entropy": "forward_backward returns none",
    "ref_logprobs": "the loop passed on no ref_logprobs of a frozen sampling client (compute_logprobs)",
    "policy_version": "the loop did not say which weights sampled a token (policy_version)",
}
REFERENCE = "frozen sampling client"
"""Name of the policy that `ref_logprobs` are of; `reference=` gives another."""


def observe(
    run: Run,
    data: Sequence[Any],
    output: Any,
    *,
    masks: Sequence[Any] | None = None,
    ref_logprobs: Sequence[Any] | None = None,
    **rows: Any,
) -> None:
    """Add the data of one `forward_backward` to the open step of a run.

    A failure is recorded and does not stop the loop.

    Args:
        run: Open run (`trimtab.open_run`).
        data: B Datum records as the loop built them, with their `mask` where it removes that before sending.
        output: What `forward_backward` returned for them, or its log-probabilities: B rows (T,), nats.
        masks: B masks (T,), for data without `mask` or `weights`.
        ref_logprobs: B rows that a frozen policy's sampling client scored, as its `compute_logprobs` returns
            them for a datum's whole sequence (T + 1, the first one None), or of the targets (T,). nats. None:
            drift is not observed.
        **rows: What the data do not say, as arguments of `trimtab.token_batch`, one entry a datum: `reward`,
            `group`, `episode_id`, `tools`, `stop_reason`, `reward_parts`; also `tool_names`, `clip_range`,
            `conventions`. `policy_version`, the optimizer steps that the weights had seen that sampled a
            datum, needs `current_version`, those that the trained weights have seen; without it all data
            count as sampled with the weights that are trained now.

    Example:
        result = training_client.forward_backward(data, "importance_sampling").result()
        observe(run, data, result, reward=rewards, group=groups, tools=tools)
        run.flush(step, metrics)

    Reference:
        tinker 0.22.0, types/forward_backward_output.py; tinker-cookbook 0.6.1, rl/train.py, train_step.
    """
    with run.isolated("read Tinker data"):
        scores = {"logprobs": trainer_logprobs(output), "ref_logprobs": _reference(data, ref_logprobs)}
        targets = {name: scored for name, scored in scores.items() if scored is not None}
        columns = datum_columns(data, masks=masks, **targets)
        known = {*columns, *rows} | ({"old_logprobs"} if "logprobs" in columns else set())
        absent = {name: why for name, why in _ABSENT.items() if name not in known}
        reference = {"reference": REFERENCE} if "ref_logprobs" in columns else {}
        for part in scored_parts(columns, {"absent": absent, **reference, **rows}):
            run.observe(**part)


def trainer_logprobs(output: Any) -> list[Any] | None:
    """Return the trainer's log-probabilities of each datum (T,), nats; None where the loss returned none.

    Args:
        output: A ForwardBackwardOutput (`loss_fn_outputs`), or B rows.

    Returns:
        B arrays, in the order of the data.

    Raises:
        BatchError: some data have log-probabilities and some have none.

    Example:
        >>> trainer_logprobs([{"logprobs": {"data": [-0.5], "dtype": "float32"}}])[0].tolist()
        [-0.5]
    """
    outputs = getattr(output, "loss_fn_outputs", output)
    fields = [isinstance(item, dict) and "data" not in item for item in outputs]
    missing = [record and "logprobs" not in item for record, item in zip(fields, outputs, strict=True)]
    if any(missing):
        if all(missing):
            return None
        raise BatchError(f"output {missing.index(True)} of {len(missing)} has no logprobs, others have")
    raws = [item["logprobs"] if record else item for record, item in zip(fields, outputs, strict=True)]
    return [values_of(raw) for raw in raws]


def _reference(data: Sequence[Any], rows: Sequence[Any] | None) -> list[np.ndarray] | None:
    """Return a reference's scores of the targets (T,), of those of whole sequences (T + 1,)."""
    if rows is None:
        return None
    if len(rows) != len(data):
        raise BatchError(
            f"ref_logprobs has {len(rows)} rows, but there are {len(data)} data: one row a datum"
        )
    arrays = [
        np.array([np.nan if score is None else score for score in np.asarray(row, object)], np.float64)
        for row in rows
    ]
    sizes = [num_targets(datum) for datum in data]
    return [array[1:] if array.size == size + 1 else array for array, size in zip(arrays, sizes, strict=True)]
