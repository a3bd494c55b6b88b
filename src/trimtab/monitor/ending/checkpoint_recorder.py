"""Checkpoints of a run, written down at their save: files, hashes, position in the data, settings, sampler.

Two rows a checkpoint. The first one is written at once, with the sizes of the files. The second has their
hashes; they are computed in a thread of its own, which training does not wait for, and its row is written by
a later call of the run. A process that is killed in between leaves the first row, and no half of a hash.
"""

from __future__ import annotations

import math
import os
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from trimtab.capture.clean_values import Door
from trimtab.catalog import bound
from trimtab.errors import RunError
from trimtab.runs.checkpoints.checkpoint_files import checkpoint_files, weight_names
from trimtab.runs.checkpoints.weight_hashes import Files, hash_files, weights_hash
from trimtab.runs.schema import whole_number
from trimtab.runs.secret_masks import masked_settings

Row = dict[str, Any]


@dataclass(frozen=True)
class CheckpointFacts:
    """What a loop knows of a checkpoint beside its files; all of it may be empty."""

    position: Mapping[str, Any]  # in the data: epoch, batch, seed, ...
    settings: Mapping[str, Any]  # of the training, by the names of its configuration
    sampler: Mapping[str, Any]  # `step`: whose weights the inference engine has; `synchronises`: by itself


class CheckpointRecorder:
    """Records checkpoints of one session of a run.

    Args:
        write: puts one row into the run.
    """

    def __init__(self, write: Callable[[Row], None]) -> None:
        self._write = write
        self._hashing: list[_Hashing] = []

    def begin(self, step: int, path: str | os.PathLike[str], facts: CheckpointFacts) -> None:
        """Write down a checkpoint that was just saved, and begin to hash it.

        Raises:
            RunError: the folder cannot be read, or holds no weights.
        """
        folder = Path(os.path.abspath(path))
        try:
            files = checkpoint_files(folder)
        except OSError as error:
            raise RunError(f"checkpoint {folder} cannot be read: {error.strerror or error}") from error
        if not weight_names(files):
            raise RunError(f"checkpoint {folder} has no weights (*.safetensors, pytorch_model*.bin)")
        row = {
            "step": step, "time": time.time(), "path": str(folder), "weights": "",
            "files": {name: [size, ""] for name, size in files.items()},
            **{name: _json(name, getattr(facts, name)) for name in ("position", "settings", "sampler")},
        }  # fmt: skip
        self._write(row)
        self._hashing.append(_Hashing(row, folder, files))

    def collect(self, wait_s: float = 0.0) -> None:
        """Write the rows whose hashes are ready.

        Args:
            wait_s: seconds to wait for those that are not, all together.

        Raises:
            RunError: files changed or were deleted while they were hashed; the first row stands.
        """
        end = time.monotonic() + wait_s
        failures = []
        while self._hashing:
            one = self._hashing[0]
            one.thread.join(max(0.0, end - time.monotonic()))
            if one.thread.is_alive():
                break
            self._hashing.pop(0)
            if one.failure:
                failures.append(f"checkpoint of step {one.row['step']} was not hashed: {one.failure}")
            else:
                hashes = {"files": one.files, "weights": weights_hash(one.files), "hash_s": one.seconds}
                self._write({**one.row, **hashes, "time": time.time()})
        if failures:
            raise RunError("; ".join(failures))

    def close(self) -> None:
        """Wait for hashes, no longer than `hash_wait` seconds, and write them."""
        try:
            self.collect(bound("hash_wait"))
        finally:
            self._hashing = []


class _Hashing:
    """The hashes of one checkpoint, computed in a thread that ends with the process."""

    def __init__(self, row: Row, folder: Path, sizes: Mapping[str, int]) -> None:
        self.row, self.files, self.seconds, self.failure = row, Files(), 0.0, ""
        self.thread = threading.Thread(
            target=self._run, args=(folder, sizes), name="trimtab-hashes", daemon=True
        )
        self.thread.start()

    def _run(self, folder: Path, sizes: Mapping[str, int]) -> None:
        start = time.perf_counter()
        try:
            self.files = hash_files(folder, sizes)
        except OSError as error:
            self.failure = f"{error.strerror or error}"
        self.seconds = round(time.perf_counter() - start, 3)


def _json(name: str, value: Mapping[str, Any]) -> Row:
    """A mapping as it can be stored: its secrets masked, and no number that is not finite."""
    clean = masked_settings(dict(Door().json(name, value)))
    return {
        key: None if isinstance(item, float) and not math.isfinite(item) else item
        for key, item in clean.items()
    }


class _Ending(Protocol):
    checkpoints: CheckpointRecorder


class CheckpointInputs:
    """The method of `Run` that takes in a checkpoint."""

    _ending: _Ending

    def isolated(self, where: str, cost: str = "watch") -> AbstractContextManager[None]:
        """Return a context that records its block's failure; the run's own."""
        raise NotImplementedError

    def checkpoint(
        self,
        step: int,
        path: str | os.PathLike[str],
        position: Mapping[str, Any] | None = None,
        settings: Mapping[str, Any] | None = None,
        sampler: Mapping[str, Any] | None = None,
    ) -> None:
        """Record a checkpoint that was just saved, so that `trimtab resume-check` can compare it later.

        Its files are hashed in a thread. Call it on the rank that saved, once the files are whole.

        Args:
            step: optimizer steps that the weights have seen, as `flush` counts them.
            path: folder of the checkpoint.
            position: in the data, as `{"epoch": 1, "batch": 40, "seed": 1}`.
            settings: of the training, by the names of its configuration; secrets are masked.
            sampler: `{"step": 40}`, the step whose weights the inference engine has now;
                `{"synchronises": True}`, it gets the trainer's before it generates.

        Example:
            save(model, "runs/exp1/checkpoint-40")
            run.checkpoint(40, "runs/exp1/checkpoint-40", {"epoch": 0, "batch": 40}, sampler={"step": 40})
        """
        with self.isolated("record a checkpoint", "checkpoints"):
            facts = CheckpointFacts(position or {}, settings or {}, sampler or {})
            self._ending.checkpoints.begin(whole_number("step", step, 0), path, facts)
