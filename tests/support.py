"""Synthetic token streams with known answers, for tests and benchmarks. Everything is seeded."""

from __future__ import annotations

import gc
import io
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout, suppress
from functools import cache
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np

import trimtab
from trimtab.types import TokenBatch

TOOLS = ("search", "stock")


@contextmanager
def running(
    command: Sequence[str],
    limit: float = 300,
    start: type[subprocess.Popen[str]] = subprocess.Popen,
    **options: Any,
) -> Iterator[subprocess.Popen[str]]:
    """A child that a test may interrupt, with its output in pipes; it outlives neither the block nor `limit` seconds.

    A suite started in the background of a shell ignores SIGINT, and children inherit that: this one's is set back, in this process
    and before it starts, as code between fork and exec may wait for ever for a lock that another thread held.
    """
    options = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True} | options
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        child = start(command, **options)
    finally:
        signal.signal(signal.SIGINT, before)
    killer = threading.Timer(limit, child.kill)
    killer.start()
    with child:
        try:
            yield child
        finally:
            killer.cancel()
            if child.poll() is None:
                child.kill()


def finished(command: Sequence[str], limit: float = 300, **options: Any) -> subprocess.CompletedProcess[str]:
    """A child that starts others, as torchrun does, run to its end. After the limit it is asked to end, so that it may end them, then killed."""
    with running(command, limit + 90, **options) as child:
        try:
            out, err = child.communicate(timeout=limit)
        except subprocess.TimeoutExpired:
            child.terminate()
            with suppress(subprocess.TimeoutExpired):
                child.communicate(timeout=60)
            raise
    return subprocess.CompletedProcess(command, child.returncode, out, err)


def cli(*arguments: object) -> subprocess.CompletedProcess[str]:
    """The command line in this process, which spares a second of imports: exit code, stdout and stderr."""
    from trimtab.cli import main

    command = ["trimtab", *map(str, arguments)]
    out, err, code = io.StringIO(), io.StringIO(), 0
    with redirect_stdout(out), redirect_stderr(err), patch.object(sys, "argv", command):
        try:
            main()
        except SystemExit as done:
            code = done.code if isinstance(done.code, int) else int(done.code is not None)
    return subprocess.CompletedProcess(command, code, out.getvalue(), err.getvalue())


def leave_group() -> None:
    """Leave torch's process group when nothing of the caller's holds a DistributedDataParallel any more.

    One that outlives the group takes gloo's threads down with it and waits for them while it holds the interpreter's lock, which they
    may want: seen on torch 2.13, some one in eighty processes of a busy machine hung for ever.
    """
    import torch.distributed as dist

    gc.collect()
    if dist.is_initialized():
        dist.destroy_process_group()


def make_batch(
    rng: np.random.Generator,
    sequences: int = 32,
    text: int = 40,
    tool: int = 10,
    post: int = 40,
    text_scale: float = 0.02,
    post_scale: float = 0.05,
    step: int = 0,
    mismatch: float = 0.0,
    stale: float = 0.0,
    **changes: Any,
) -> TokenBatch:
    """B sequences of `text` model tokens, `tool` tool tokens, `post` model tokens; |drift| is half-normal by slice.

    `stale`: the policy is so many times as far from its rollouts as from its reference.
    """
    width = text + tool + post
    shape = (sequences, width)
    loss_mask = np.ones(shape, bool)
    loss_mask[:, text : text + tool] = False
    scale = np.where(np.arange(width) < text, text_scale, post_scale)
    reference = -rng.exponential(1.0, shape) - 0.5
    drift = rng.normal(size=shape) * scale
    columns: dict[str, Any] = {
        "logprobs": np.minimum(reference + drift, 0.0),
        "ref_logprobs": reference,
        "advantages": rng.normal(size=sequences),
        "entropy": rng.uniform(0.1, 0.5, shape),
        "reward": rng.integers(0, 2, sequences).astype(float),
        "episode_id": np.arange(sequences) + 100_000 * step,
    }
    if mismatch:
        columns["rollout_logprobs"] = np.minimum(columns["logprobs"] + rng.normal(size=shape) * mismatch, 0.0)
    if stale:
        columns["rollout_logprobs"] = np.minimum(
            columns["logprobs"] + rng.normal(size=shape) * stale * scale, 0.0
        )
    columns |= changes
    tools = (
        [[TOOLS[int(i)]] for i in rng.integers(0, len(TOOLS), sequences)]
        if tool
        else [[] for _ in range(sequences)]
    )
    return trimtab.token_batch(
        columns.pop("loss_mask", loss_mask),
        tools=tools,
        tool_names=TOOLS,
        **{"reference": "frozen copy", **columns},
    )


def write_run(
    folder: Path,
    steps: int = 30,
    seed: int = 0,
    grow_from: int | None = None,
    growth: float = 1.3,
    shape: dict[str, Any] | None = None,
    **open_with: Any,
) -> Path:
    """A run on disk; from step `grow_from` on, the post-tool drift grows by `growth` a step while text stays.

    Equal runs of one process are made once and copied.
    """
    if open_with or folder.exists():
        return _record(folder, steps, seed, grow_from, growth, shape or {}, **open_with)
    key = (steps, seed, grow_from, growth, tuple(sorted((shape or {}).items())))
    shutil.copytree(_recorded_once(*key), folder)
    return folder


@cache
def _scratch() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory()  # removed at exit


@cache
def _recorded_once(
    steps: int, seed: int, grow_from: int | None, growth: float, shape: tuple[tuple[str, Any], ...]
) -> Path:
    folder = Path(tempfile.mkdtemp(dir=_scratch().name)) / "run"
    return _record(folder, steps, seed, grow_from, growth, dict(shape))


def _record(
    folder: Path,
    steps: int,
    seed: int,
    grow_from: int | None,
    growth: float,
    shape: dict[str, Any],
    **open_with: Any,
) -> Path:
    rng = np.random.default_rng(seed)
    with trimtab.open_run(folder, strict=True, **open_with) as run:
        for step in range(steps):
            factor = growth ** max(0, step - grow_from) if grow_from is not None else 1.0
            run.observe(make_batch(rng, step=step, **{"sequences": 64, **shape}, post_scale=0.05 * factor))
            run.tool_call(trimtab.ToolCall("search", {"q": "x"}, 12, "" if step % 5 else "timeout", 0.01))
            run.flush(
                step,
                {
                    "reward": 0.5 + 0.01 * rng.normal(),
                    "grad_norm": 1.0 + 0.05 * rng.normal(),
                    "loss": rng.normal(),
                },
                duration_s=1.0,
            )
    return folder
