"""CSV exports of W&B's panels.

A column of steps; for every run and metric `RUN - KEY`, `RUN - KEY__MIN` and `RUN - KEY__MAX`. One file holds
as many runs as the panel showed. One of them is read, for a log is of one run.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from trimtab.errors import MetricLogError
from trimtab.metric_logs.formats.types import STEP_KEYS, RawLog

_RANGE = ("__MIN", "__MAX")
_CLOCKS = ("Relative Time (Process)", "Relative Time (Wall)", "Wall Time", "Duration")
_BETWEEN = " - "


def is_panel(log: RawLog) -> bool:
    """Is a CSV file a panel's export: are all columns but the first of the form `RUN - KEY`?

    >>> is_panel(RawLog("csv", [{"Step": "1", "a - train/kl": "0.1", "a - train/kl__MIN": "0.1"}]))
    True
    """
    columns = log.keys()
    return len(columns) > 1 and _BETWEEN not in columns[0] and all(_BETWEEN in name for name in columns[1:])


def one_run(log: RawLog, path: Path, run: str | None) -> RawLog:
    """Keep one run of a panel's export, under the keys it logged.

    Args:
        log: the rows of the file, one cell a column.
        path: the file, for messages.
        run: name of the run to read; the one with most values when None.

    Returns:
        The same log with rows `{step, KEY: value}`. Smallest and largest values of buckets are left out.

    Raises:
        MetricLogError: there is no such run, or the panel's axis is a clock and no column has the step.

    Example:
        >>> log = RawLog("csv", [{"Step": "1", "a - train/kl": "0.1", "b - train/kl": None}])
        >>> one_run(log, Path("panel.csv"), None).rows
        [{'step': '1', 'train/kl': '0.1'}]
    """
    axis, *names = log.keys()
    columns = [name for name in names if not name.endswith(_RANGE)]
    sizes: Counter[str] = Counter()
    for name in columns:
        owner, key = name.rsplit(_BETWEEN, 1)
        sizes[owner] += 0 if key == "_step" else sum(row.get(name) is not None for row in log.rows)
    if run is not None and run not in sizes:
        raise MetricLogError(f"{path} has no run {run!r}; it has {', '.join(list(sizes)[-6:])}")
    chosen = run or sizes.most_common(1)[0][0]
    keys = {name: name.rsplit(_BETWEEN, 1)[1] for name in columns if name.rsplit(_BETWEEN, 1)[0] == chosen}
    steps = axis
    if axis in _CLOCKS:
        steps = next((name for name, key in keys.items() if key == "_step"), "")
        if not steps:
            raise MetricLogError(f"{path} has {axis!r} and no step; export the panel with Step as its x axis")
    label = axis if axis in STEP_KEYS and steps == axis and axis != "Step" else "step"
    log.rows = [
        {label: row.get(steps), **{key: row[name] for name, key in keys.items() if key != "_step"}}
        for row in log.rows
        if any(row.get(name) is not None for name, key in keys.items() if key != "_step")
    ]
    if len(sizes) > 1:
        others = ", ".join(name for name in sizes if name != chosen)
        log.excluded[f"other runs of the panel ({path.name}#RUN reads one; read: {chosen}): {others}"] = (
            len(sizes) - 1
        )
    return log
