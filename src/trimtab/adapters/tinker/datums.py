"""Datum records as packed columns. B data, T positions of one, N tokens of all.

The mistake it prevents: a shift by one. `target_tokens[t]` is the token after `model_input[t]`, and every
other field of a Datum, and the trainer's log-probabilities, are of that target.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from trimtab.capture.arrays import to_array
from trimtab.errors import BatchError
from trimtab.typing import Array, Bool, Int64

_MASKS = ("mask", "weights")
"""Names of a Datum's mask: the cookbook's own, and the API's."""


def datum_columns(
    data: Sequence[Any], *, masks: Sequence[Any] | None = None, **targets: Sequence[Any]
) -> dict[str, Any]:
    """Return packed columns of B data, each from its first sampled token on.

    What stands before the first sampled token is the prompt. After it, a token outside the mask is the
    environment's (a tool's result) if it has no sampler log-probability: loops put exactly 0 there. One
    outside the mask with a log-probability was sampled, and left out of the loss.

    Args:
        data: B records with `model_input` and `loss_fn_inputs`: `target_tokens` (T,), and where the loop
            has them `logprobs` (T,) nats of the sampler, `advantages` (T,), and `mask` or `weights` (T,),
            above 0 on the tokens that are trained.
        masks: B masks (T,) for data without one. Needed where all advantages of a datum are 0: else tokens
            with an advantage are the trained ones.
        **targets: More columns of the targets, B rows (T,) each, such as `logprobs` of the trainer.

    Returns:
        `lengths` (B,), and packed (N,): `loss_mask`, `tool_tokens`, `token_ids`, `rollout_logprobs`,
        `advantages`, and those of `targets`. A field that no datum has is left out.

    Raises:
        BatchError: fields of unequal lengths, targets that are not the input shifted by one, several targets
            a position, or no way to tell which tokens were sampled; the message names the datum.

    Example:
        >>> prompt_result_answer = {"target_tokens": [5, 6, 7, 8], "logprobs": [0.0, -1.0, 0.0, -2.0],
        ...                         "mask": [0, 1, 0, 1]}
        >>> columns = datum_columns([{"model_input": [4, 5, 6, 7], "loss_fn_inputs": prompt_result_answer}])
        >>> columns["token_ids"].tolist(), columns["tool_tokens"].tolist()
        ([6, 7, 8], [False, True, False])

    Reference:
        tinker 0.22.0, types/datum.py; tinker-cookbook 0.6.1, rl/data_processing.py, trajectory_to_data.
    """
    more = {"masks": masks, **targets} if masks is not None else targets
    for name, rows in more.items():
        if len(rows) != len(data):
            raise BatchError(f"{name} has {len(rows)} rows, but there are {len(data)} data: one row a datum")
    own = [_row(i, datum, None if masks is None else masks[i]) for i, datum in enumerate(data)]
    for name, rows in targets.items():
        for i, (row, raw) in enumerate(zip(own, rows, strict=True)):
            row[name] = _field(i, name, raw, row["loss_mask"].size)
    cut = [{name: values[_start(row["loss_mask"]) :] for name, values in row.items()} for row in own]
    names = [name for name in (own[0] if own else ()) if all(name in row for row in own)]
    for name in {name for row in own for name in row} - set(names):
        raise BatchError(f"some of the data have {name} and some have none: give it to all or to none")
    lengths = np.array([row["loss_mask"].size for row in cut], np.int64)
    return {"lengths": lengths, **{name: np.concatenate([row[name] for row in cut]) for name in names}}


def values_of(raw: Any) -> Array:
    """Return a tensor record (`to_numpy`), its JSON (`data`), a tensor or a list as an array.

    >>> values_of({"data": [1.0, 2.0], "dtype": "float32"}).tolist()
    [1.0, 2.0]
    """
    if isinstance(raw, Mapping):
        raw = raw["data"]
    convert = getattr(raw, "to_numpy", None)
    return np.asarray(convert()) if convert is not None else to_array("values", raw)


def num_targets(datum: Any) -> int:
    """Return T of a datum."""
    return int(values_of(_get(datum, "loss_fn_inputs")["target_tokens"]).size)


def _row(index: int, datum: Any, mask: Any) -> dict[str, Array]:
    """Return the columns of one datum (T,)."""
    inputs = _get(datum, "loss_fn_inputs")
    if "target_tokens" not in inputs:
        raise BatchError(
            f"datum {index} has no target_tokens; it has {', '.join(sorted(inputs)) or 'nothing'}"
        )
    tokens = values_of(inputs["target_tokens"])
    if tokens.ndim != 1:
        raise BatchError(f"datum {index} has target_tokens {tokens.shape}: one target a position is needed")
    row: dict[str, Array] = {"token_ids": tokens.astype(np.int64)}
    for name, key in (("rollout_logprobs", "logprobs"), ("advantages", "advantages")):
        if key in inputs:
            row[name] = _field(index, key, inputs[key], tokens.size)
    weights = next((inputs[key] for key in _MASKS if key in inputs), None) if mask is None else mask
    loss_mask = _sampled(index, row) if weights is None else _field(index, "mask", weights, tokens.size) > 0
    _require_shift(index, _input_tokens(_get(datum, "model_input")), row["token_ids"], loss_mask)
    return {"loss_mask": loss_mask, "tool_tokens": _environment(loss_mask, row), **row}


def _field(index: int, name: str, raw: Any, size: int) -> Array:
    values = values_of(raw)
    if values.shape != (size,):
        raise BatchError(
            f"datum {index} has {name} {values.shape} and {size} target_tokens: both are of the targets, "
            "so they must be as long; a sampled sequence's first token is the target of the prompt's last"
        )
    return values


def _sampled(index: int, row: Mapping[str, Array]) -> Bool:
    """Return which targets have an advantage; BatchError where none has."""
    mask = np.asarray(row["advantages"] != 0) if "advantages" in row else np.zeros(0, bool)
    if not mask.any():
        raise BatchError(
            f"datum {index} has neither mask nor weights nor an advantage other than 0, so that its sampled "
            "tokens and its prompt look alike: give masks=[...], one row a datum"
        )
    return mask


def _environment(mask: Bool, row: Mapping[str, Array]) -> Bool:
    """Return which targets after the first sampled one the environment wrote."""
    written = ~mask & (np.arange(mask.size) >= _start(mask))
    return np.asarray(written & (row["rollout_logprobs"] == 0)) if "rollout_logprobs" in row else written


def _start(mask: Array) -> int:
    """Return the index of the first token in the mask; the length of a row without one."""
    return int(np.argmax(mask)) if mask.any() else mask.size


def _require_shift(index: int, tokens: Int64 | None, targets: Array, mask: Bool) -> None:
    """Raise BatchError unless the trained targets are the input's next tokens.

    Targets of the prompt are not compared: loops may fill them with zeros. An input with images has no tokens
    to compare.
    """
    if tokens is None:
        return
    if tokens.size != targets.size:
        raise BatchError(f"datum {index} has {tokens.size} tokens of model_input and {targets.size} targets")
    wrong = (tokens[1:] != targets[:-1]) & mask[:-1]
    if wrong.any():
        at = int(np.argmax(wrong))
        raise BatchError(
            f"datum {index}: target_tokens[{at}] is {targets[at]}, but the next token of model_input is "
            f"{tokens[at + 1]}: targets are the input shifted by one"
        )


def _input_tokens(model_input: Any) -> Int64 | None:
    """Return the tokens of a ModelInput, or of a plain list; None with chunks that are no text."""
    chunks = model_input if isinstance(model_input, (list, tuple)) else _get(model_input, "chunks")
    if all(isinstance(chunk, (int, np.integer)) for chunk in chunks):
        return np.asarray(chunks, np.int64)
    parts = [_get(chunk, "tokens", None) for chunk in chunks]
    if any(part is None for part in parts):
        return None
    return np.concatenate([np.asarray(part, np.int64) for part in parts]) if parts else np.zeros(0, np.int64)


def _get(record: Any, name: str, *default: Any) -> Any:
    """Return a field of a record or of its JSON."""
    if isinstance(record, Mapping):
        return record.get(name, *default) if default else record[name]
    return getattr(record, name, *default)
