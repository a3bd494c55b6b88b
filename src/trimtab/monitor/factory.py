"""Open a run folder for writing."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from types import NoneType
from typing import Any

import msgspec

from trimtab.capture.clean_values import Door
from trimtab.catalog import WINDOW_TOKENS, WINDOW_TRAJECTORIES
from trimtab.detect.rules.rule import Rule
from trimtab.detect.user_rules.load import header_config, resolve
from trimtab.distributed.sources import MergeOptions, merge_options
from trimtab.errors import RunError
from trimtab.guard import Controls, GuardOptions, StableStates, guard_options
from trimtab.measure.state.requirements import Requirements
from trimtab.measure.state.windows import WindowSet
from trimtab.monitor.guarding import GuardArguments, Share
from trimtab.monitor.run import Run
from trimtab.monitor.run_identity import with_identity
from trimtab.monitor.run_options import RunOptions, rank_of_environment
from trimtab.runs import RunWriter
from trimtab.runs.schema import FIRST_WORKER, whole_number
from trimtab.sinks import Sink, open_sinks

log = logging.getLogger("trimtab")

_RESERVED = ("min_tokens", "min_trajectories", "rules", "python_rules", "guard", "merge")


def open_run(
    folder: str | os.PathLike[str],
    *,
    rank: int | None = None,
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
    guard: str | os.PathLike[str] | GuardOptions | None = None,
    controls: Controls | None = None,
    states: StableStates | None = None,
    share: Share | None = None,
    sinks: Sequence[str | Sink] | None = (),
    merge: str | MergeOptions | None = None,
    post_mortem: bool = True,
) -> Run:
    """Open a run folder, new or to be resumed, for one rank's writing.

    Args:
        folder: the run folder; it is created where it does not exist.
        rank: rank of this process; each rank writes files of its own. None: as torchrun, accelerate, SLURM or
            Open MPI set it in the environment, else 0. Where another live process writes as this rank, the
            next free one is taken, with a warning.
        config: what to store in the header of a new run.
        strict: raise the monitor's own failures instead of recording them.
        state_every: steps a stored histogram covers at first; it doubles with the run's age.
        min_tokens: tokens a slice needs before a window is judged.
        min_trajectories: trajectories a slice needs before a window is judged.
        token_text: token id -> text, written with the worst tokens.
        required_tools: tools that the policy should use.
        key_arguments: tool -> argument whose values are counted.
        required_files: values of those arguments that should occur.
        solved_at: smallest reward of a solved task.
        groups_span_steps: a `group` number means the same prompt in every step of a window.
        rules: your own rules, as `Rule` objects or the path of a YAML file (docs/how-to/user-rules.md). The
            false-alarm budget is split over all rules.
        guard: what is done about incidents: "observe", "recommended", "strict", or the path of a policy file
            (docs/how-to/guard.md). None: nothing.
        controls: the levers of the trainer, for a guard that is to act.
        states: the ring of stable states, for rollbacks.
        share: returns on every rank the text that rank 0 passed in. With it rank 0 decides, and all ranks do
            the same; every rank must call `flush`, and `before_update` if any does. None: each rank decides.
        sinks: where numbers and incidents go as well, as "tensorboard:FOLDER", "wandb:PROJECT",
            "mlflow:URI", "trackio:PROJECT", or objects of `trimtab.sinks` and `trimtab.alerts`
            (docs/how-to/sinks.md). Each has a thread of its own, on rank 0; one that fails or hangs stops
            nothing.
        merge: "folder", "gloo", or `trimtab.distributed.MergeOptions`: the leading rank judges the readings
            of all ranks, some steps late, and without `share` its guard's decisions are applied by all ranks
            at a later step (docs/how-to/many-ranks.md). No step waits for a rank. None: each rank judges its
            own.
        post_mortem: write `postmortem.json` when the run ends badly (docs/how-to/post-mortem.md). False:
            nothing is written then, and SIGTERM is left alone.

    Returns:
        The run; close it, or use it as a context manager.

    Raises:
        RunError: the folder is something else, of a newer format or not writable, or a requirement cannot
            hold.
        RuleError: a rule is malformed.
        GuardError: an option of the guard is malformed, it is to act and has no controls, or its ring may
            grow larger than the disk of `folder`.
        SinkError: a sink is unknown, or its library is not installed.

    Example:
        with trimtab.open_run("runs/exp1") as run:
            run.observe(loss_mask=mask, logprobs=logprobs, ref_logprobs=ref_logprobs)
            run.flush(step=0, metrics={"reward": 0.4})
    """
    requirements = Requirements(
        required_tools, key_arguments or {}, required_files, solved_at, groups_span_steps
    )
    state_every = whole_number("state_every", state_every, 1)
    min_tokens = whole_number("min_tokens", min_tokens, 1)
    min_trajectories = whole_number("min_trajectories", min_trajectories, 1)
    if not isinstance(config, (Mapping, NoneType)) or not (token_text is None or callable(token_text)):
        raise RunError("config is a dictionary, and token_text a function from a token's id to its text")
    opened = open_sinks(sinks)
    windows = {"min_tokens": min_tokens, "min_trajectories": min_trajectories}
    added = resolve(rules)
    own = header_config(added)
    own_rank, world_size = rank_of_environment(os.environ)
    rank = own_rank if rank is None else rank
    if rank == own_rank and world_size > 1:
        config = {"world_size": world_size, **(config or {})}
    merging = _merge(merge, {"world_size": world_size, **(config or {})}, rank)
    watched = None if guard is None else GuardArguments(guard_options(guard), controls, states, share)
    guarded = {} if watched is None else {"guard": msgspec.to_builtins(watched.options)}
    if watched is not None:
        watched.options.require_disk(folder)
    merged = {} if merging is None else {"merge": merging.config()}
    mine = {**windows, **requirements.config(), **own, **guarded, **merged}
    writer = RunWriter(folder, rank, {**with_identity(_config(config or {})), **mine})
    stored = {
        name: value for name, value in writer.header["config"].items() if name in ("rules", "python_rules")
    }
    if stored != own:
        log.warning(
            "trimtab: %s was begun with other rules; views judge by those, and show of the new ones what fires from now on. "  # noqa: E501
            "Give a new folder to have all judged alike.", folder,
        )  # fmt: skip
    return Run(
        writer,
        WindowSet(min_tokens, min_trajectories),
        RunOptions(
            strict, state_every, token_text, requirements, added, watched, opened, merging, bool(post_mortem)
        ),
    )


def _merge(merge: str | MergeOptions | None, config: Mapping[str, Any], rank: int) -> MergeOptions | None:
    """The options with the number of ranks, from the caller, the config or the environment."""
    options = merge_options(merge)
    if options is None:
        return None
    if options.ranks is None:
        ranks = config.get("ranks", config["world_size"])
        options = replace(options, ranks=whole_number("merge: the number of ranks", ranks, 1))
    if (options.ranks or 1) <= rank < FIRST_WORKER:
        raise RunError(
            f"merge: rank is {rank} of {options.ranks} ranks, so nobody reads it; "
            "give MergeOptions(ranks=...), or to a worker outside the trainer's group a rank from "
            f"{FIRST_WORKER} on"
        )
    return options


def _config(config: Mapping[str, Any]) -> dict[str, Any]:
    """The caller's config as JSON; a name of the header's own is kept under `config/`."""
    reserved = {*_RESERVED, *Requirements.__dataclass_fields__}
    values = dict(Door().json("config", config))
    return {f"config/{name}" if name in reserved else name: value for name, value in values.items()}
