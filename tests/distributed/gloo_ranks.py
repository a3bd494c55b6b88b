"""One rank of a job that merges through a gloo group, without a collective of a trainer: a test paces it step by step."""

from __future__ import annotations

import time
from datetime import timedelta
from multiprocessing.connection import Connection
from typing import Any

import torch.distributed as dist

import trimtab
from tests.distributed.dealt_sequences import EVERY, OPEN, arrays, metrics
from trimtab.distributed import MergeOptions


def do_steps(folder: str, port: int, rank: int, ranks: int, test: Connection) -> None:
    """Do a step whenever the test sends something, and answer; end where it sends None."""
    store = dist.TCPStore("127.0.0.1", port, is_master=False, timeout=timedelta(seconds=60))
    merge = MergeOptions(way="gloo", ranks=ranks, store=store, lag=6 * EVERY, deadline_s=2.0, end_wait_s=3.0)
    with trimtab.open_run(folder, rank=rank, merge=merge, strict=True, **OPEN) as run:
        source: Any = run._merge.source  # type: ignore[union-attr]
        deadline = time.monotonic() + 60
        while not source.group.is_ready and time.monotonic() < deadline:
            time.sleep(0.02)
        test.send({"ready": source.group.is_ready})
        step = 0
        while test.recv() is not None:
            run.observe(**arrays(step, rank, ranks))
            start = time.monotonic()
            run.flush(step, metrics(step))
            took_s = time.monotonic() - start
            test.send({"took_s": took_s, "over": source.group.is_over, "gathered": source.num_gathered})
            step += 1
