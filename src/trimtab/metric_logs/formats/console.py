"""Rows that trainers print on a console, out of whatever else a console shows.

Read after these sources:

- transformers 5.23: `ProgressCallback.on_log`.
- verl 0.9.1: `verl/utils/logger/aggregate_logger.py`, `concat_dict_to_str`.
- THUDM/slime@624b824: `slime/observability/rollout_metrics.py`, `train_metric_utils.py`, and
  `slime/backends/megatron_utils/model.py`.
- SkyRL 0.3.0: `skyrl/train/utils/tracking.py`, `ConsoleLogger`.
- OpenRLHF 0.11.2: `openrlhf/trainer/ppo_trainer.py`.
- PrimeIntellect-ai/prime-rl@559b447: `src/prime_rl/trainer/rl/train.py`, `orchestrator/orchestrator.py`.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import Any

from trimtab.metric_logs.formats.text_formats import as_utf8
from trimtab.metric_logs.formats.types import RawLog

_SIGNS = b"|".join(
    rb"(?:\r?\n)?".join(re.findall(b".", key)) for key in (b"epoch", b"learning_rate", b"train_runtime")
)
CONSOLE_ROW = re.compile(rb"\{'(?=[^{}]*'\s*(?:" + _SIGNS + rb")\s*'\s*:\s)[\w/.\- \r\n]+'\s*:\s[^{}]*\}")
"""A row as Hugging Face's Trainer prints it: a Python dict of plain values, maybe wrapped by a terminal."""

_NUMBER = rb"(?:-?(?:\d[\d_]*\.?\d*(?:[eE][+-]?\d+)?|nan|inf)|True|False)"
_VALUE = rb"(?:np\.\w+\()?" + _NUMBER + rb"\)?"
_VERL = re.compile(rb"(?:^|[\s)])step:(\d+)((?: - [^\s:](?:(?! - )[^\n])*?:" + _VALUE + rb"(?=\s|$))+)", re.M)
"""verl: `step:3 - actor/entropy:0.41 - perf/throughput:np.float64(812.5)`."""

_VERL_START = re.compile(rb"(?:^|[\s)])step:\d+ - ")
_MAX_WRAPPED = 300

_VERL_PAIR = re.compile(
    rb" - ((?:(?! - )[^\n])+?):" + _VALUE.replace(_NUMBER, rb"(" + _NUMBER + rb")") + rb"(?=\s|$)"
)

_COUNTED = re.compile(
    rb"\b((?:Global |critic-)?step|Step|perf|rollout|eval|multi_turn|passrate) (\d+):\s+(\{'[^{}]*\})"
)
"""slime (`step 3: {...}`, `rollout 3: {...}`), OpenRLHF (`Global step 3: {...}`) and SkyRL (`Step 3:`, a dict
printed on the lines after it)."""

_PRIME = re.compile(rb"\bStep (\d+) \| +([\dhdms. ]+?) \| ((?:Loss|Reward) [^\n]*)")
"""prime-rl: `Step 3 |  12.5s | Loss 0.0012 | Entropy 0.41 | ...`, of the trainer or of the orchestrator."""

_PRIME_KEYS = {
    "Loss": "loss/mean", "Entropy": "entropy/all/mean", "Mismatch KL": "mismatch_kl/all/mean",
    "Grad. Norm": "optim/grad_norm", "LR": "optim/lr", "Throughput": "perf/throughput",
    "Reward": "reward/all/mean", "Turns": "train/agg/effective/num_turns/mean",
    "Truncation": "is_truncated/all/mean",
}  # fmt: skip
_PRIME_NAMES = "|".join(map(re.escape, _PRIME_KEYS))
_PRIME_PAIR = re.compile(rf"({_PRIME_NAMES}) (-?[\d.]+(?:e[+-]?\d+)?|-?nan|-?inf)(%?)")
_SECONDS = {"d": 86400.0, "h": 3600.0, "m": 60.0, "s": 1.0, "ms": 0.001}

_BAR = re.compile(rb"(\d+)/\d+ \[")
_WHOLE_BAR = re.compile(rb"\r?[^\r\n{}|]*\d+%\|[^|\r\n]*\| *\d+/\d+ \[[^\]\r\n]*\]\r?\n?")
_COLOUR = re.compile(rb"\x1b(?:\[[0-9;?]*[A-Za-z]|\][^\x07\x1b]*(?:\x07|\x1b\\))")
_RAY = re.compile(rb"^\([A-Za-z_][\w.:]* (?:pid|ip)=[^)\n]*\) ?", re.M)
_NUMPY = re.compile(rb"np\.\w+\(([^()]*)\)")
_BARE = re.compile(rb": ?(-?(?:nan|inf))\b")

_Row = tuple[int, dict[str, Any] | None]
"""Where a row begins, and its numbers; None where it could not be read."""


def has_console_row(data: bytes) -> bool:
    """Does a trainer's row stand anywhere in the text?

    >>> has_console_row(b"(TaskRunner pid=7) step:1 - actor/entropy:0.5"), has_console_row(b"step: 1")
    (True, False)
    """
    text = _RAY.sub(b"", _COLOUR.sub(b"", data))
    return any(pattern.search(text) for pattern in (CONSOLE_ROW, _COUNTED, _PRIME, _VERL))


def read_console(data: bytes) -> RawLog:
    """Every row a trainer printed, in the order of the console.

    Colours, Ray's prefixes and progress bars inside a row are taken out. A Trainer's row without a step has
    that of the last progress bar before it, where one shows a step at all.

    Args:
        data: the text, in UTF-8, or UTF-16 with its mark.

    Returns:
        The rows under the trainer's own keys. `malformed lines` counts rows that could not be read.

    Example:
        >>> read_console(b"step:1 - actor/entropy:0.5 - actor/lr:1e-06\\n").rows
        [{'step': 1, 'actor/entropy': 0.5, 'actor/lr': 1e-06}]
    """
    text = _RAY.sub(b"", _COLOUR.sub(b"", as_utf8(data)))
    log = RawLog("console", [])
    rows = [
        *_trainer_rows(text, log),
        *_verl_rows(_unwrapped(text), log),
        *_counted_rows(text),
        *_prime_rows(text),
    ]
    for _, row in sorted(rows, key=lambda row: row[0]):
        if row is None:
            log.excluded["malformed lines"] += 1
        else:
            log.rows.append(row)
    return log


def _literal(text: bytes) -> dict[str, Any] | None:
    """A printed dict of plain values, also with bare NaN, NumPy's scalars and breaks of wrapped lines."""
    text = _WHOLE_BAR.sub(b"", text)
    for joined in (text, re.sub(rb"\r?\n", b"", text)):  # a break inside a name or a number
        try:
            row = ast.literal_eval(
                _BARE.sub(rb": '\1'", _NUMPY.sub(rb"\1", joined)).decode("utf-8", "replace")
            )
        except (ValueError, SyntaxError, MemoryError, RecursionError):
            continue
        if isinstance(row, dict):
            return row
    return None


def _trainer_rows(text: bytes, log: RawLog) -> list[_Row]:
    rows: list[_Row] = []
    last, step = 0, b""
    for match in CONSOLE_ROW.finditer(text):
        bars = _BAR.findall(text, last, match.start())
        step, last = (bars[-1] if bars else step), match.end()
        row = _literal(match[0])
        if row is not None and "train_runtime" in row:
            log.excluded["summaries of the run"] += 1
        else:
            rows.append(
                (match.start(), {"step": int(step), **row} if row and step and "step" not in row else row)
            )
    if not any(row and "step" in row for _, row in rows):
        _number_rows([row for _, row in rows if row], log)
    return rows


def _number_rows(rows: list[dict[str, Any]], log: RawLog) -> None:
    """Number the rows of a console without a bar, as the bar goes to standard error.

    An evaluation is of the row of training before it. Without one the rows are as they were.
    """
    evaluations = [all(key == "epoch" or key.startswith("eval_") for key in row) for row in rows]
    if not any(evaluations):
        return
    log.notes.append("no row has a step: steps are the numbers of the rows of training, 1 the first")
    step = 0
    for row, is_evaluation in zip(rows, evaluations, strict=True):
        step += not is_evaluation
        row["step"] = step


def _unwrapped(text: bytes) -> bytes:
    """The text with verl's rows on one line each, where a terminal wrapped them.

    >>> _unwrapped(b"step:1 - actor/ent\\nropy:0.5 - a/lr:1.0\\nnoise")
    b'step:1 - actor/entropy:0.5 - a/lr:1.0\\nnoise'
    """
    lines, i = text.split(b"\n"), 0
    unwrapped: list[bytes] = []
    while i < len(lines):
        further = _further_lines(lines, i) if _VERL_START.search(lines[i]) else 0
        unwrapped.append(b"".join(line.rstrip(b"\r") for line in lines[i : i + further + 1]))
        i += further + 1
    return b"\n".join(unwrapped)


def _further_lines(lines: list[bytes], i: int) -> int:
    """How many lines a row of verl's goes on for: all as wide as the terminal, but for the last."""
    width = len(lines[i + 1]) if i + 1 < len(lines) else 0
    end = i
    while end + 1 < min(len(lines), i + _MAX_WRAPPED):
        line = lines[end + 1]
        if not line.strip() or len(line) > width or _VERL_START.search(line):
            break
        end += 1
        if len(line) < width:
            break
    whole = _is_verl_to_its_end(lines[i])
    for last in range(end, i, -1):
        joined = b"".join(line.rstrip(b"\r") for line in lines[i : last + 1])
        if _is_verl_to_its_end(joined) and (not whole or b" - " in joined[len(lines[i]) :]):
            return last - i
    return 0


def _is_verl_to_its_end(line: bytes) -> bool:
    match = _VERL.search(line)
    return match is not None and match.end() == len(line.rstrip())


def _verl_rows(text: bytes, log: RawLog) -> Iterator[_Row]:
    for match in _VERL.finditer(text):
        pairs = _VERL_PAIR.findall(match[2])
        if match.end() == len(text) and len(pairs) > 1:  # the last number may have been cut
            pairs = pairs[:-1]
            log.excluded["truncated last line"] += 1
        row = {key.decode("utf-8", "replace"): _number(value) for key, value in pairs}
        yield match.start(), {"step": int(match[1]), **row}


def _number(text: bytes) -> float:
    return float({b"True": b"1", b"False": b"0"}.get(text, text))


def _counted_rows(text: bytes) -> Iterator[_Row]:
    """slime counts rollouts and updates apart: its two counters are its own keys for them."""
    for match in _COUNTED.finditer(text):
        row, kind = _literal(match[3]), match[1]
        if row is None or not all(isinstance(key, str) for key in row):
            yield match.start(), None
        elif kind == b"Global step":
            yield match.start(), {"global_step": int(match[2]), **row}
        elif all("/" in key for key in row):  # else a line of another program
            counter = {b"Step": "step", b"step": "train/step", b"critic-step": "train/step"}.get(
                kind, "rollout/step"
            )
            yield match.start(), {counter: int(match[2]), **row}


def _prime_rows(text: bytes) -> Iterator[_Row]:
    for match in _PRIME.finditer(text):
        row: dict[str, Any] = {"step": int(match[1])}
        if match[3].startswith(b"Loss"):
            parts = re.findall(r"([\d.]+)(ms|[dhms])", match[2].decode())
            row["time/step"] = sum(float(value) * _SECONDS[unit] for value, unit in parts)
        for name, value, percent in _PRIME_PAIR.findall(match[3].decode("utf-8", "replace")):
            row[_PRIME_KEYS[name]] = float(value) / (100 if percent else 1)
        yield match.start(), row
