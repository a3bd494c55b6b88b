"""Retries with exponential backoff and jitter, entered only after a first failure (tenacity)."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from trimtab.tools.extras import library
from trimtab.tools.failures import ToolFailure


@dataclass(frozen=True)
class RetryOptions:
    """How often and when. Waits: `initial_s * 2^n` plus up to `jitter_s`, at most `max_s`, or Retry-After."""

    attempts: int = 3  # in all, the first one too; calls that an open breaker held back do not count
    initial_s: float = 0.1
    max_s: float = 10.0
    jitter_s: float = 0.1
    give_up_s: float = 120.0  # after so many seconds nothing is tried again


@dataclass
class Progress:
    """What one call has used up: attempts that went out, seconds in our own queues."""

    attempts: int = 0
    queued_s: float = 0.0


def may_retry(failure: ToolFailure, idempotent: bool, progress: Progress, options: RetryOptions) -> bool:
    """May the call be tried again? Never one that may have run, unless it is idempotent.

    >>> refused = ToolFailure("infrastructure", "circuit_open", "", sent=False)
    >>> broken = ToolFailure("infrastructure", "connection", "")
    >>> sent = Progress(attempts=1)
    >>> [may_retry(broken, True, sent, RetryOptions()), may_retry(broken, False, sent, RetryOptions()),
    ...  may_retry(refused, False, Progress(), RetryOptions())]
    [True, False, True]
    """
    if not failure.transient or progress.attempts >= options.attempts:
        return False
    return idempotent or progress.attempts == 0


async def try_again(
    first: ToolFailure,
    attempt: Callable[[], Awaitable[Any]],
    idempotent: bool,
    progress: Progress,
    options: RetryOptions,
) -> Any:
    """Repeat a call whose first attempt failed; return its value or raise the last failure.

    Args:
        first: The failure of the first attempt.
        attempt: One attempt; it raises `ToolFailure` and counts itself in `progress`.
        idempotent: May it run twice?
        progress: What the call has used up, shared with `attempt`.
        options: The waits and their end.

    Returns:
        The value of the attempt that succeeded.

    Raises:
        ToolFailure: The last one.
    """
    tenacity = library("tenacity")
    backoff = tenacity.wait_exponential_jitter(options.initial_s, options.max_s, jitter=options.jitter_s)
    failures = [first]

    def wait(state: Any) -> float:
        wanted: float = state.outcome.exception().retry_after_s
        return max(float(backoff(state)), wanted)

    def again(error: BaseException) -> bool:
        return isinstance(error, ToolFailure) and may_retry(error, idempotent, progress, options)

    async def run() -> Any:
        if failures:
            raise failures.pop()
        return await attempt()

    retrying = tenacity.AsyncRetrying(
        sleep=library("anyio").sleep,
        stop=_stop_before(time.monotonic() + options.give_up_s),
        wait=wait,
        retry=tenacity.retry_if_exception(again),
        reraise=True,
    )
    return await retrying(run)


def _stop_before(deadline: float) -> Callable[[Any], bool]:
    return lambda state: time.monotonic() + state.upcoming_sleep > deadline
