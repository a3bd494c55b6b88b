"""The tokens of a run, packed and exact, so that a run can be recorded again by a later version without being trained again.

A file holds one array a column over all steps. `token_counts` (B,) and `sequence_counts` (S,) say where sequences and steps end.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from trimtab.errors import RunError
from trimtab.lab.database import TOOL_NAMES
from trimtab.lab.tasks import TEXT_KINDS

__all__ = ["KINDS", "STOPS", "Array", "RunBatches", "StepBatch", "load_batches"]

Array = npt.NDArray[Any]
KINDS = (*TOOL_NAMES, "both", *TEXT_KINDS)
STOPS = ("eos", "length", "calls")
TOKEN_COLUMNS = {
    "token_ids": np.uint8,
    "own": np.bool_,  # the policy wrote it
    "rollout_logprobs": np.float32,
    "old_logprobs": np.float32,  # the trainer's engine at the weights it had when the batch was sampled
    "logprobs": np.float32,
    "ref_logprobs": np.float32,  # of the sequences with `scored`
    "next_logprobs": np.float32,  # after this step's update, of the sequences with `scored`
    "entropy": np.float16,
}
SEQUENCE_COLUMNS = {
    "token_counts": np.int16,
    "group": np.int16,
    "kind": np.uint8,  # index into KINDS
    "stop": np.uint8,  # index into STOPS
    "reward": np.float32,  # what is trained on
    "true_reward": np.float32,
    "correct": np.float32,
    "format": np.float32,
    "long": np.float32,  # the part of the reward that a proxy pays for length
    "advantage": np.float32,
    "version": np.int16,  # of the weights that sampled it, as the sampler reports it
    "scored": np.bool_,
    "call_counts": np.uint8,
}
STEP_COLUMNS = {
    "step": np.int16,
    "rate": np.float32,
    "loss": np.float32,
    "grad_norm": np.float32,
    "cpu_seconds": np.float32,
}


@dataclass(frozen=True, eq=False)
class StepBatch:
    """One trained step: columns of its tokens, sequences and of itself; `calls`: tool of each call, 0 for an unknown name; `failed`: which failed."""

    tokens: Mapping[str, Array]
    sequences: Mapping[str, Array]
    numbers: Mapping[str, float]
    calls: Array
    failed: Array
    probe_logprobs: Array | None = None
    """(n,) log-probabilities of the probes' own tokens before the update, at some steps."""

    @property
    def step(self) -> int:
        """Number of the step, from 1."""
        return int(self.numbers["step"])

    @property
    def reward(self) -> float:
        """Mean true reward: the one that events are read from."""
        return float(self.sequences["true_reward"].mean())


@dataclass
class RunBatches:
    """All steps of one run, with what it is."""

    identity: dict[str, Any]
    """Cause, role, seed, regime and fault step as JSON."""
    steps: list[StepBatch] = field(default_factory=list)

    @property
    def rewards(self) -> list[float]:
        """Mean true reward of every step."""
        return [batch.reward for batch in self.steps]

    def save(self, path: Path) -> None:
        """Write the run into one .npz file, which appears whole or not at all."""
        path.parent.mkdir(parents=True, exist_ok=True)
        arrays: dict[str, Array] = {"identity": np.array([repr(self.identity)])}
        for name, kind in TOKEN_COLUMNS.items():
            arrays[f"token/{name}"] = _joined([b.tokens[name] for b in self.steps], kind)
        for name, kind in SEQUENCE_COLUMNS.items():
            arrays[f"sequence/{name}"] = _joined([b.sequences[name] for b in self.steps], kind)
        for name, kind in STEP_COLUMNS.items():
            arrays[f"step/{name}"] = np.array([b.numbers[name] for b in self.steps], kind)
        arrays["step/sequence_counts"] = np.array([b.sequences["group"].size for b in self.steps], np.int16)
        arrays["call/tool"] = _joined([b.calls for b in self.steps], np.uint8)
        arrays["call/failed"] = _joined([b.failed for b in self.steps], np.bool_)
        probed = [b for b in self.steps if b.probe_logprobs is not None]
        arrays["probe/step"] = np.array([b.step for b in probed], np.int16)
        arrays["probe/logprobs"] = np.array([b.probe_logprobs for b in probed], np.float32)
        half = path.with_name(f"{path.name}.part")
        with half.open("wb") as file:
            np.savez_compressed(file, **arrays)  # type: ignore[arg-type]
        half.replace(path)


def load_batches(path: Path) -> RunBatches:
    """Read a file of `RunBatches.save`; raises RunError for one that is missing or damaged."""
    import ast
    import zipfile

    try:
        with np.load(path) as source:
            arrays = {name: source[name] for name in source.files}
        identity = ast.literal_eval(str(arrays["identity"][0]))
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile) as error:
        raise RunError(f"{path} cannot be read: {error}; train the run again") from error
    return RunBatches(identity, _split(arrays))


def _split(arrays: Mapping[str, Array]) -> list[StepBatch]:
    counts = arrays["step/sequence_counts"].astype(np.int64)
    sequences = _cut(arrays, "sequence/", SEQUENCE_COLUMNS, counts)
    tokens = _cut(
        arrays, "token/", TOKEN_COLUMNS, [int(s["token_counts"].astype(np.int64).sum()) for s in sequences]
    )
    ends = np.cumsum([int(s["call_counts"].astype(np.int64).sum()) for s in sequences])[:-1]
    calls, failed = (np.split(arrays[f"call/{name}"], ends) for name in ("tool", "failed"))
    probes = dict(zip(arrays["probe/step"].tolist(), arrays["probe/logprobs"], strict=True))
    numbers = [
        {name: arrays[f"step/{name}"][index].item() for name in STEP_COLUMNS} for index in range(counts.size)
    ]
    return [
        StepBatch(own, rows, number, call, errors, probes.get(int(number["step"])))
        for own, rows, number, call, errors in zip(tokens, sequences, numbers, calls, failed, strict=True)
    ]


def _cut(
    arrays: Mapping[str, Array], prefix: str, names: Mapping[str, Any], counts: Sequence[int] | Array
) -> list[dict[str, Array]]:
    ends = np.cumsum(np.asarray(counts, np.int64))[:-1]
    columns = {name: np.split(arrays[prefix + name], ends) for name in names}
    return [{name: pieces[index] for name, pieces in columns.items()} for index in range(len(counts))]


def _joined(pieces: Sequence[Array], kind: Any) -> Array:
    return np.concatenate(pieces).astype(kind) if pieces else np.zeros(0, kind)
