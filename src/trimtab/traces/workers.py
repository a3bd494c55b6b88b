"""Maps of a function over jobs: in this process, in worker processes, or as Ray tasks. Answers come in the
order of the jobs."""

from __future__ import annotations

import contextlib
import gc
import importlib
import logging
import multiprocessing
import os
import socket
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from typing import Any, TypeVar

from trimtab.errors import TraceError

J = TypeVar("J")
A = TypeVar("A")
Mapper = Callable[[Callable[[Any], Any], Iterable[Any]], Iterator[Any]]

LOCAL = "local"
"""The address that means: start Ray here, for this reading."""
MAX_WORKERS = 8


def num_workers() -> int:
    """Return how many processors this process may use, 8 at most; 1 where it may start no process of its
    own."""
    if multiprocessing.current_process().daemon:
        return 1
    affinity = getattr(os, "sched_getaffinity", None)
    return min(MAX_WORKERS, len(affinity(0)) if affinity else os.cpu_count() or 1)


@contextlib.contextmanager
def process_map() -> Iterator[Mapper]:
    """Map over worker processes, which are spawned: a fork of a process with threads may hang.

    Where they cannot start (a script that has no `if __name__ == "__main__"`), this process does the work.
    """
    workers = num_workers()
    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(workers, spawn, initializer=gc.disable) as pool:  # episodes have no cycles
        yield lambda function, jobs: _pooled(pool, workers, function, jobs)


def _pooled(
    pool: ProcessPoolExecutor, workers: int, function: Callable[[J], A], jobs: Iterable[J]
) -> Iterator[A]:
    waiting: deque[tuple[J, Any]] = deque()
    rest = iter(jobs)
    try:
        for job in rest:
            waiting.append((job, pool.submit(function, job)))
            if len(waiting) > workers + 1:
                answer = waiting[0][1].result()
                waiting.popleft()
                yield answer
        while waiting:
            answer = waiting[0][1].result()
            waiting.popleft()
            yield answer
    except BrokenProcessPool:
        for job, _ in waiting:
            yield function(job)
        yield from map(function, rest)


@contextlib.contextmanager
def ray_map(address: str) -> Iterator[Mapper]:
    """Map as Ray tasks of one CPU, two for each CPU of the cluster under way; a Ray already started in this
    process is used.

    Workers read the logs themselves, which must lie at the same path on all machines. TraceError where Ray is
    not installed, the cluster cannot be reached, or a task fails.
    """
    try:
        ray: Any = importlib.import_module("ray")
    except ImportError as error:
        raise TraceError("--ray needs Ray: pip install 'trimtab[ray]'") from error
    ours = not ray.is_initialized()
    if ours:
        _start(ray, address)
    try:
        yield lambda function, jobs: _tasks(ray, function, jobs)
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


def _tasks(ray: Any, function: Callable[[J], A], jobs: Iterable[J]) -> Iterator[A]:
    task, waiting = ray.remote(num_cpus=1)(function), deque[Any]()
    limit = 2 * max(1, int(ray.cluster_resources().get("CPU", 1)))
    for job in jobs:
        waiting.append(task.remote(job))
        if len(waiting) > limit:
            yield _answer(ray, waiting.popleft())
    while waiting:
        yield _answer(ray, waiting.popleft())


def _answer(ray: Any, waited: Any) -> Any:
    try:
        return ray.get(waited)
    except ray.exceptions.RayError as error:
        cause = getattr(error, "cause", None)
        if isinstance(cause, TraceError):
            raise cause from error
        why = str(cause or error).strip().splitlines()[-1]
        raise TraceError(
            f"a Ray worker failed: {why[:200]}; the logs must be at the same path, and trimtab installed, "
            f"on all machines"
        ) from error
