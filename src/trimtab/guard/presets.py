"""Options of a guard: three presets, or a YAML policy file (docs/how-to/guard.md)."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec

from trimtab.catalog import bound
from trimtab.detect.user_rules.yaml_source import Source, close, convert, read_yaml
from trimtab.errors import GuardError, RuleError
from trimtab.guard.cause_table import POLICIES_OF_CAUSE, UNDECIDED
from trimtab.guard.policies.base import Policy, Steps
from trimtab.guard.policies.bound_staleness import BoundStaleness
from trimtab.guard.policies.constrain_tool import ConstrainTool
from trimtab.guard.policies.ess_scaled_step import EssScaledStep
from trimtab.guard.policies.kl_cap import KlCap
from trimtab.guard.policies.learning_rate_backoff import LearningRateBackoff
from trimtab.guard.policies.quarantine_tool import ToolQuarantineOptions
from trimtab.guard.policies.rollback import RollbackOptions
from trimtab.guard.policies.skip_update import SkipUpdates
from trimtab.guard.policies.stop import StopOptions
from trimtab.guard.policies.tighten_corrections import TightenCorrections

_GB = 1e9


class Policies(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The policies with their options, by the names that files and records use."""

    bound_staleness: BoundStaleness = BoundStaleness()
    learning_rate_backoff: LearningRateBackoff = LearningRateBackoff()
    tighten_corrections: TightenCorrections = TightenCorrections()
    kl_cap: KlCap = KlCap()
    constrain_tool: ConstrainTool = ConstrainTool()
    quarantine_tool: ToolQuarantineOptions = ToolQuarantineOptions()
    skip_update: SkipUpdates = SkipUpdates()
    ess_scaled_step: EssScaledStep = EssScaledStep()
    rollback: RollbackOptions = RollbackOptions()
    stop: StopOptions = StopOptions()


class StateOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The ring of stable states."""

    every: Steps = int(bound("guard_keep_every"))  # steps between two states
    count: Steps = int(bound("guard_keep_count"))  # states at a time
    max_gb: Annotated[float, msgspec.Meta(gt=0)] | None = None  # of the whole ring; None: as the disk allows


class GuardOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What a guard does, and when. Steps are calls of `Guard.after_step`."""

    observe: bool = False  # change nothing, and record what would have been done
    min_severity: Literal["warning", "critical"] = "warning"  # incidents below it are left alone
    ignore_rules: tuple[str, ...] = ()  # rules whose alarms are left alone
    confirm_steps: Steps = int(
        bound("guard_confirm")
    )  # an incident must stay open so long; a critical one need not
    cool_down: Steps = int(bound("guard_cool_down"))  # steps between two actions for one cause
    patience: Steps = int(bound("guard_patience"))  # steps after which an incident that stays open gets more
    soften_times: Steps = int(
        bound("guard_soften")
    )  # softer actions before a rollback, unless it is critical
    recover_after: Steps = int(bound("guard_recover"))  # calm steps before each step back
    open_limit: Steps = int(
        bound("guard_open_limit")
    )  # an alarm that is open longer does not prevent recovery
    forget_after: Steps = int(bound("guard_forget"))  # steps after which a rollback does not count any more
    budget: Steps = int(bound("guard_budget"))  # actions that tighten within `forget_after` steps
    policies: Policies = Policies()
    causes: dict[str, tuple[str, ...]] = {}
    states: StateOptions = StateOptions()

    @property
    def table(self) -> dict[str, tuple[str, ...]]:
        """Cause -> policies, the built-in table with the changes of `causes`."""
        return {**POLICIES_OF_CAUSE, **self.causes}

    def policy(self, name: str) -> Policy:
        """Return a policy by its name."""
        policy: Policy = getattr(self.policies, name)
        return policy

    def require_disk(self, folder: str | os.PathLike[str], state_bytes: float | None = None) -> None:
        """Raise GuardError where the ring does not fit on the disk of `folder`.

        Args:
            folder: where the states are to be written; its nearest existing parent counts.
            state_bytes: size of one state, where it is known; else `states.max_gb` is compared alone.
        """
        where = next(
            path for path in (Path(folder).absolute(), *Path(folder).absolute().parents) if path.exists()
        )
        free = shutil.disk_usage(where).free
        capped = [] if self.states.max_gb is None else [self.states.max_gb * _GB]
        needed = min(
            [*capped, *([] if state_bytes is None else [state_bytes * self.states.count])], default=0.0
        )
        if needed > free:
            raise GuardError(
                f"guard: a ring of {self.states.count} states needs {needed / _GB:.3g} GB, and {where} has "
                f"{free / _GB:.3g} GB free; lower states.count or states.max_gb, or keep LoRA weights only"
            )


PRESETS: Mapping[str, GuardOptions] = {
    "observe": GuardOptions(observe=True),
    "recommended": GuardOptions(),
    "strict": GuardOptions(
        confirm_steps=1, soften_times=1, policies=Policies(stop=StopOptions(when_nothing_is_left=True))
    ),
}
"""`observe` records what `recommended` would do; `strict` acts at once, and stops where nothing is left."""

_NAMES = tuple(Policies.__struct_fields__)
_OWN_TIME = ("quarantine_tool", "skip_update", "ess_scaled_step", "rollback", "stop")
"""Policies that answer no cause of the table: they act by rules of their own."""


def guard_options(guard: str | os.PathLike[str] | GuardOptions) -> GuardOptions:
    """Return the options of a preset or of a YAML policy file.

    Args:
        guard: "observe", "recommended", "strict", or the path of a policy file. A file has the fields of
            `GuardOptions`, and `preset`, the one that it changes ("recommended").

    Returns:
        The options, checked.

    Raises:
        GuardError: no such preset or file, an unknown field, policy or cause, or a value out of range.

    Example:
        >>> guard_options("recommended").policies.learning_rate_backoff.factor
        0.3
    """
    if isinstance(guard, GuardOptions):
        return guard
    if isinstance(guard, str) and guard in PRESETS:
        return PRESETS[guard]
    if isinstance(guard, str) and not Path(guard).exists() and not guard.endswith((".yaml", ".yml")):
        raise GuardError(f"guard={guard!r}: no such preset or file; give {', '.join(PRESETS)} or a YAML file")
    try:
        return _of_file(os.fspath(guard))
    except RuleError as error:
        text = str(error).replace("give a list of rules under `rules:`", "give fields of a guard")
        raise GuardError(text.replace("a YAML file of rules", "a YAML file of guard options")) from error


def _of_file(path: str) -> GuardOptions:
    data, source = read_yaml(path)
    if not isinstance(data, dict):
        raise source.error((), "give fields of a guard, such as `cool_down: 20`", "guard")
    preset = data.pop("preset", "recommended")
    if preset not in PRESETS:
        raise source.error(("preset",), f"{preset!r:.40} is unknown{close(preset, PRESETS)}")
    known = msgspec.to_builtins(PRESETS[preset])
    options = convert(_merged(known, data), GuardOptions, source, of=" of a guard")
    _check_causes(options, source)
    return options


def _merged(known: dict[str, Any], given_values: Any) -> Any:
    """A preset's fields with those of a file put over them, group by group."""
    if not isinstance(given_values, dict):
        return given_values
    result = dict(known)
    for key, value in given_values.items():
        inside = known.get(key)
        result[key] = _merged(inside, value) if isinstance(inside, dict) and key != "causes" else value
    return result


def _check_causes(options: GuardOptions, source: Source) -> None:
    causes = (*POLICIES_OF_CAUSE, UNDECIDED)
    usable = [name for name in _NAMES if name not in _OWN_TIME]
    for cause, row in options.causes.items():
        if cause not in causes:
            raise source.error(("causes", cause), f"{cause!r:.40} is not a cause{close(cause, causes)}")
        for name in row:
            if name not in usable:
                raise source.error(("causes", cause), f"unknown action {name!r:.40}{close(name, usable)}")
