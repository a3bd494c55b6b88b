"""Open a run folder for writing."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from trimtab.catalog import WINDOW_TOKENS, WINDOW_TRAJECTORIES
from trimtab.detect.rules.rule import Rule
from trimtab.detect.user_rules.load import header_config, resolve
from trimtab.measure.state.requirements import Requirements
from trimtab.measure.state.windows import WindowSet
from trimtab.monitor.run import Run, RunOptions
from trimtab.runs import RunWriter

log = logging.getLogger("trimtab")


def open_run(
    folder: str | os.PathLike[str],
    *,
    rank: int = 0,
    config: Mapping[str, Any] | None = None,
    strict: bool = False,
    state_every: int = 5,
    min_tokens: int = WINDOW_TOKENS,
    min_trajectories: int = WINDOW_TRAJECTORIES,
    token_text: Callable[[int], str] | None = None,
    required_tools: Sequence[str] = (),
    key_arguments: Mapping[str, str] | None = None,
    required_files: Sequence[str] = (),
    solved_at: float | None = None,
    groups_span_steps: bool = False,
    rules: str | os.PathLike[str] | Sequence[Rule] = (),
) -> Run:
    """Open a run folder, new or to be resumed, for one rank's writing.

    `state_every`: steps a stored histogram covers at first (it doubles with the run's age). `min_tokens` and
    `min_trajectories`: what a slice needs before a window is judged. `token_text`: the text of a token id, written beside
    the worst tokens. `strict` re-raises the monitor's own failures.
    `required_tools` to `groups_span_steps` say what cannot be seen: which tools and files should be used, and so on; see
    `trimtab.measure.state.requirements.Requirements`.
    `rules`: rules of your own beside the built-in ones, as `Rule` objects or the path of a YAML file (docs/how-to/user-rules.md); the
    false-alarm budget is split over all.
    Raises RunError when the folder is something else, or of a newer format, or a declaration cannot hold; RuleError for a
    rule that cannot be right.
    """
    requirements = Requirements(
        required_tools, key_arguments or {}, required_files, solved_at, groups_span_steps
    )
    windows = {"min_tokens": min_tokens, "min_trajectories": min_trajectories}
    added = resolve(rules)
    own = header_config(added)
    writer = RunWriter(folder, rank, {**(config or {}), **windows, **requirements.config(), **own})
    stored = {
        name: value for name, value in writer.header["config"].items() if name in ("rules", "python_rules")
    }
    if stored != own:
        log.warning(
            "trimtab: %s was begun with other rules; views judge by those, and show of the new ones what fires from now on. "
            "Give a new folder to have all judged alike.", folder,
        )  # fmt: skip
    return Run(
        writer,
        WindowSet(min_tokens, min_trajectories),
        RunOptions(strict, state_every, token_text, requirements, added),
    )
