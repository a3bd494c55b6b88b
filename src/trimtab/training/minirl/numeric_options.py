"""Numbers of MiniRLConfig: what each may be, alone and by slice, and which of them the chosen objective reads."""

from __future__ import annotations

import math
import numbers
from collections.abc import Callable, Iterator
from typing import Any

from trimtab.errors import ObjectiveError, UnsupportedError
from trimtab.training.minirl.objective_defaults import PAPERS

SLICE_NAMES = ("text", "post_tool")
"""Tokens before the first tool result of a row, and after it."""

SLICE_KNOBS = (
    "weight_cap",
    "epsilon",
    "epsilon_high",
    "beta",
    "correction_low",
    "correction_high",
    "k3_bound",
)
CORRECTION_BOUNDS = {"none": (0.5, 2.0), "tis": (0.5, 2.0), "mis": (0.5, 2.0), "icepop": (0.5, 5.0)}
"""`correction` -> (low, high) where the user sets none; tis has no low."""

_Range = tuple[Callable[[float], bool], str]
_ABOVE: _Range = (lambda v: v > 0, "above 0")
_COUNT: _Range = (lambda v: v >= 1 and v == int(v), "a whole number of 1 or more")
_NOT_NEGATIVE: _Range = (lambda v: 0 <= v < math.inf, "0 or more and finite")
_SHARE: _Range = (lambda v: 0 < v <= 1, "in (0, 1]")
_RANGES: dict[str, _Range] = {
    "weight_cap": (lambda v: v > 0, "above 0, a ratio (inf: no cap)"),
    "epsilon": (lambda v: v >= 0, "0 or more (inf: no clip below)"),
    "epsilon_high": (lambda v: v >= 0, "0 or more (inf: no clip above)"),
    "beta": _NOT_NEGATIVE,
    "delta": (lambda v: v > 1, "above 1: a dual clip of 1 or less freezes on-policy tokens"),
    "off_policy_mask_threshold": _ABOVE,
    "correction_low": _NOT_NEGATIVE,
    "correction_high": _ABOVE,
    "k3_bound": _ABOVE,
    "veto_floor": (lambda v: 0 < v < 1, "in (0, 1), a ratio such as 1e-4"),
    "ewma_centre_of_mass": _NOT_NEGATIVE,
    "prox_beta": _NOT_NEGATIVE,
    "ess_base": _SHARE,
    "ess_floor": (lambda v: 0 <= v <= 1, "in [0, 1]"),
    "entropy_keep": (lambda v: 0 < v <= 1, "in (0, 1], the share of tokens kept; None: off"),
    "covariance_drop": (lambda v: 0 <= v < 1, "in [0, 1), the share of tokens dropped; None: off"),
    "bonus_target": _NOT_NEGATIVE,
    "bonus_rate": (lambda v: 0 < v < math.inf, "above 0 and finite"),
    "bonus_highest": _NOT_NEGATIVE,
    "num_iterations": _COUNT,
}


def check_numbers(args: Any) -> None:
    """ObjectiveError with the field, its value and its range; None passes where it is the default."""
    for name in _RANGES:
        value = getattr(args, name)
        if value is not None or type(args).__dataclass_fields__[name].default is not None:
            _check(name, name, value)
    if args.scale_rewards not in (None, True, False, "group", "batch", "none"):
        raise ObjectiveError(f"scale_rewards must be group, batch or none; got {args.scale_rewards!r}")
    if args.correction in ("mis", "icepop"):
        for where, table in (
            ("", {}),
            *((f" of slices[{k!r}]", own) for k, own in (args.slices or {}).items()),
        ):
            low, high = (
                table.get(name, _or(getattr(args, name), default))
                for name, default in zip(
                    ("correction_low", "correction_high"), CORRECTION_BOUNDS[args.correction], strict=True
                )
            )
            if not low < high:
                raise ObjectiveError(
                    f"correction_low{where} must be below correction_high; got {low:g} and {high:g} ({args.correction})"
                )


def _or(value: float | None, default: float) -> float:
    return default if value is None else value


def _check(name: str, shown: str, value: Any) -> None:
    good, words = _RANGES[name]
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        raise ObjectiveError(f"{shown} must be a number {words}; got {value!r}")
    if math.isnan(value) or not good(float(value)):
        raise ObjectiveError(f"{shown} must be {words}; got {value!r}")


def knobs_read(args: Any) -> frozenset[str]:
    """Which of SLICE_KNOBS the objective and its correction look at; the others would change nothing."""
    objective, read = args.objective, {"beta", "k3_bound"}
    if PAPERS[objective].cap is not None and (args.importance or objective != "minirl"):
        read.add("weight_cap")
    if objective in ("ppo", "grpo", "dr_grpo", "dapo", "gspo", "decoupled") or (
        objective == "minirl" and args.clip
    ):
        read |= {"epsilon", "epsilon_high"}
    if objective == "cispo":
        read.add("epsilon_high")
    if args.correction != "none":
        read.add("correction_high")
    if args.correction in ("mis", "icepop"):
        read.add("correction_low")
    return frozenset(read)


def check_slices(args: Any) -> None:
    """ObjectiveError for what is no table of numbers; UnsupportedError for a number the objective does not read."""
    if args.slices is not None and not isinstance(args.slices, dict):
        raise ObjectiveError(
            f"slices must be a table such as {{'post_tool': {{'epsilon_high': 0.1}}}}; got {args.slices!r}"
        )
    for name, table in (args.slices or {}).items():
        if name not in SLICE_NAMES or not isinstance(table, dict):
            raise ObjectiveError(
                f"slices must name {' and '.join(SLICE_NAMES)} with a table each; got {name!r}: {table!r}"
            )
        for knob, value in table.items():
            shown = f"slices[{name!r}][{knob!r}]"
            if knob not in SLICE_KNOBS:
                raise ObjectiveError(f"slices[{name!r}] has {knob!r}; it takes {', '.join(SLICE_KNOBS)}")
            _check(knob, shown, value)
            for text in _slice_needs(args, knob):
                raise ObjectiveError(f"{shown} {text}")
            if knob not in knobs_read(args):
                raise UnsupportedError(
                    f"MiniRLTrainer: {shown} has no effect: {_reader(args)} does not read {knob}; take it out"
                )


def _slice_needs(args: Any, knob: str) -> Iterator[str]:
    if knob == "beta" and not args.beta:
        yield "needs beta above 0: TRL scores no reference otherwise"
    if knob.startswith("correction") and (args.correction == "none" or args.correction_level != "token"):
        yield "needs a correction with correction_level='token'"
    if knob == "k3_bound" and (args.k3_bound is None or args.k3_level != "token"):
        yield "needs k3_bound and k3_level='token'"
    if knob == "weight_cap" and args.objective != "minirl":
        yield "is minirl's"


def _reader(args: Any) -> str:
    off = [f"{name}=False" for name in ("importance", "clip") if not getattr(args, name)]
    parts = [f"objective={args.objective!r}", *off]
    return " with ".join(
        [*parts, *([f"correction={args.correction!r}"] if args.correction != "none" else [])]
    )
