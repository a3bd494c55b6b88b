"""Chaos: faults of tools at stated rates and a seed, for a stress test and inside training.

    tools = [with_chaos(one, Chaos({"hang": 0.01, "stale": 0.02}, seed=7)) for one in tools]

Faults of the result (truncated, corrupt, oversized, stale) look like answers. Only a tool's `check_result`,
or its size limit, tells them from good ones: `Chaos.injected` against the failures seen says how many passed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from random import Random
from typing import Any

from trimtab.errors import ToolError
from trimtab.tools.extras import library
from trimtab.tools.failures import ToolFailure
from trimtab.tools.tool_definition import Arguments, Tool, result_text, with_options

MODES = {
    "latency": "the call waits before the tool is asked",
    "error": "the server answers 500",
    "unavailable": "the server answers 503 and names a time to wait",
    "hang": "no answer ever comes",
    "dropped": "the tool runs, then the connection breaks",
    "truncated": "the end of the result is missing",
    "corrupt": "characters of the result are others",
    "oversized": "the result is repeated to a million characters",
    "stale": "the result is that of the call before",
}
"""Mode -> what happens."""
SILENT = ("truncated", "corrupt", "oversized", "stale")
"""Modes whose results look like answers."""
_OVERSIZED = 1_000_000


class Chaos:
    """Rates of faults by mode; each call meets one fault or none.

    >>> chaos = Chaos({"error": 0.5}, seed=1)
    >>> [chaos.fault("search") for _ in range(4)], chaos.injected["search", "error"]
    (['error', '', '', ''], 1)
    """

    def __init__(self, rates: Mapping[str, float], seed: int = 0, *, latency_s: float = 1.0) -> None:
        for mode, rate in rates.items():
            if mode not in MODES:
                raise ToolError(f"no chaos mode {mode}; there are {', '.join(MODES)}")
            if not 0 <= rate <= 1:
                raise ToolError(f"chaos {mode}={rate}: a rate is between 0 and 1")
        if sum(rates.values()) > 1 + 1e-9:
            raise ToolError(
                f"rates of chaos add up to {sum(rates.values()):g}; a call meets one fault at most"
            )
        self.rates, self.seed, self.latency_s = dict(rates), seed, latency_s
        self.injected: Counter[tuple[str, str]] = Counter()  # (tool, mode)
        self._calls: Counter[str] = Counter()
        self._last: dict[str, str] = {}

    def fault(self, tool: str) -> str:
        """The fault that the next call of a tool meets, "" for none; the same for the same seed."""
        point = self.draw(tool).random()
        self._calls[tool] += 1
        for mode, rate in self.rates.items():
            if point < rate:
                self.injected[tool, mode] += 1
                return mode
            point -= rate
        return ""

    def draw(self, tool: str) -> Random:
        """Random numbers of a tool's next call."""
        return Random(f"{self.seed}/{tool}/{self._calls[tool]}")

    async def ask(self, tool: Tool, arguments: Arguments) -> Any:
        """One call of a tool, with its fault if it meets one."""
        random = self.draw(tool.name)
        mode = self.fault(tool.name)
        if mode in ("latency", "hang"):
            anyio = library("anyio")
            await (
                anyio.sleep_forever()
                if mode == "hang"
                else anyio.sleep(random.expovariate(1) * self.latency_s)
            )
        if mode == "error":
            raise ToolFailure("infrastructure", "server_error", "injected: HTTP 500")
        if mode == "unavailable":
            raise ToolFailure("infrastructure", "unavailable", "injected: HTTP 503", retry_after_s=0.05)
        value = await tool.run(arguments)
        if mode == "dropped":
            raise ToolFailure("infrastructure", "dropped", "injected: connection dropped before the answer")
        before, self._last[tool.name] = self._last.get(tool.name), result_text(value)
        return self._spoiled(mode, value, before, random) if mode in SILENT else value

    def _spoiled(self, mode: str, value: Any, before: str | None, random: Random) -> str:
        text = result_text(value)
        if mode == "truncated":
            return text[: random.randrange(len(text))] if text else text
        if mode == "oversized":
            return (text or "x") * (_OVERSIZED // max(len(text), 1) + 1)
        if mode == "stale":
            return text if before is None else before
        letters = list(text)
        for index in random.sample(range(len(letters)), k=(len(letters) + 9) // 10):
            letters[index] = chr(33 + (ord(letters[index]) + random.randrange(1, 90)) % 94)
        return "".join(letters)


def with_chaos(tool: Tool, chaos: Chaos) -> Tool:
    """Return the tool with faults; its checks, limits and timeout judge what comes out.

    Args:
        tool: The tool.
        chaos: Rates, shared by as many tools as you like.

    Returns:
        A copy of the tool.

    Example:
        >>> from trimtab.tools import tool as make
        >>> with_chaos(make(len, schema=None), Chaos({})).name
        'len'
    """

    async def run(arguments: Arguments) -> Any:
        return await chaos.ask(tool, arguments)

    return with_options(tool, run=run)


def parse_rates(text: str) -> dict[str, float]:
    """Return rates of `latency=0.1,error=0.05`; a single number is shared out over all modes.

    >>> parse_rates("error=0.05,hang=0.01")
    {'error': 0.05, 'hang': 0.01}
    >>> parse_rates("0.09")["stale"]
    0.01
    """
    try:
        if "=" not in text:
            return dict.fromkeys(MODES, round(float(text) / len(MODES), 12))
        pairs = (part.partition("=") for part in text.split(",") if part.strip())
        return {mode.strip(): float(rate) for mode, _, rate in pairs}
    except ValueError:
        raise ToolError(
            f"--chaos {text!r} is not MODE=RATE,... nor a rate, as in --chaos hang=0.01"
        ) from None
