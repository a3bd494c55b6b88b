"""The columnar engine over machines: a Ray task a shard, each the same SQL; what they counted is merged here.

Workers read the log themselves, so it must lie at the same path on all machines; only what is compressed travels.
"""

from __future__ import annotations

import contextlib
import importlib
import logging
import socket
from collections import deque
from collections.abc import Iterable, Iterator
from typing import Any

from trimtab.errors import TraceError
from trimtab.traces.columnar.engine import Mapper
from trimtab.traces.columnar.shard_counts import Counted, Job, count_shard

LOCAL = "local"
"""The address that means: start Ray here, for this reading."""


@contextlib.contextmanager
def ray_map(address: str) -> Iterator[Mapper]:
    """Jobs as Ray tasks of one CPU, two for each CPU of the cluster under way; a Ray already started in this process is used as it
    is. TraceError where Ray is not installed, the cluster cannot be reached, or a worker cannot read the log."""
    try:
        ray: Any = importlib.import_module("ray")
    except ImportError as error:
        raise TraceError("--ray needs Ray: pip install 'trimtab[ray]'") from error
    ours = not ray.is_initialized()
    if ours:
        _start(ray, address)
    try:
        yield lambda jobs: _mapped(ray, jobs)
    finally:
        if ours:
            ray.shutdown()


def _start(ray: Any, address: str) -> None:
    options: dict[str, Any] = {"include_dashboard": False} if address == LOCAL else {"address": address}
    try:
        _knock(address)
        ray.init(**options, logging_level=logging.ERROR, log_to_driver=False)
    except (ConnectionError, RuntimeError, ValueError, OSError) as error:
        raise TraceError(
            f"no Ray at {address}: {str(error).splitlines()[0] if str(error) else type(error).__name__}; "
            f"name the cluster's address, or {LOCAL}"
        ) from error


def _knock(address: str) -> None:
    """OSError where nobody listens: Ray itself would try for minutes."""
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if host and port.isdigit():
        socket.create_connection((host, int(port)), timeout=10).close()


def _mapped(ray: Any, jobs: Iterable[Job]) -> Iterator[Counted]:
    task, waiting = ray.remote(num_cpus=1)(count_shard), deque[Any]()
    most = 2 * max(1, int(ray.cluster_resources().get("CPU", 1)))
    for job in jobs:
        waiting.append(task.remote(job))
        if len(waiting) > most:
            yield _answer(ray, waiting.popleft())
    while waiting:
        yield _answer(ray, waiting.popleft())


def _answer(ray: Any, waited: Any) -> Counted:
    try:
        found: Counted = ray.get(waited)
    except ray.exceptions.RayError as error:
        why = str(getattr(error, "cause", None) or error).strip().splitlines()[-1]
        raise TraceError(
            f"a Ray worker failed: {why[:200]}; the logs must be at the same path, and trimtab installed, on all machines"
        ) from error
    return found
