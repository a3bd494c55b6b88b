"""Validation of MiniRLConfig: one table row a field, and one line for each setting that cannot be honoured.

A row says which numbers a field takes, whether the settings read it, and what it needs to have an effect. A
run must not look as if it had a setting that nothing reads.
"""

from __future__ import annotations

import math
import numbers
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from trimtab.errors import ObjectiveError, UnsupportedError
from trimtab.training.minirl.objective_defaults import (
    CORRECTION_BOUNDS,
    CORRECTION_PAIRS,
    DEFAULTS,
    SLICE_NAMES,
)
from trimtab.training.minirl.refused_settings import config_refusals

_CHOICES = {
    "objective": tuple(DEFAULTS),
    "correction": ("none", "tis", "mis", "icepop", *CORRECTION_PAIRS),
    "kl_estimator": (None, "k1", "k2", "k3", "k3+", "k3_weighted", "reverse", "forward", "low_var_kl", "mse"),
    "correction_level": ("token", "sequence", "geometric"),
    "k3_level": ("token", "sequence"),
    "prox_estimator": ("k1", "k2", "k3"),
    "routing_replay": ("off", "R2", "R3"),
    "ess_rule": ("sqrt", "linear"),
}
_CLIPPED = ("ppo", "grpo", "dr_grpo", "dapo", "gspo", "decoupled")
_ANCHORED = ("minirl", "decoupled", "decoupled_kl")

Test = Callable[[Any], bool]
_Range = tuple[Test, str]


def _always(_args: Any) -> bool:
    return True


@dataclass(frozen=True)
class Option:
    """One field of MiniRLConfig."""

    range: _Range | None = None
    """Numbers it takes, with the words for them; None: it is not a number."""
    read_by: Test = _always
    """Of the config: whether something reads the field."""
    needs: str = ""
    """What would read it; `{own}` is the objective in use."""
    by_slice: bool = False
    """`slices` may set it."""


def _cap(args: Any) -> bool:
    return DEFAULTS[args.objective].cap is not None and (args.importance or args.objective != "minirl")


def _clip(args: Any) -> bool:
    return args.objective in _CLIPPED or (args.objective == "minirl" and args.clip)


_ABOVE: _Range = (lambda v: v > 0, "above 0")
_NOT_NEGATIVE: _Range = (lambda v: 0 <= v < math.inf, "0 or more and finite")
_CAP = "a weight over mu (minirl with importance, decoupled); set correction"
_ANCHOR = f"a clip to anchor ({', '.join(_ANCHORED)}), which {{own}} has not"
_OPTIONS = {
    "weight_cap": Option((lambda v: v > 0, "above 0, a ratio (inf: no cap)"), _cap, _CAP, True),
    "epsilon": Option(
        (lambda v: v >= 0, "0 or more (inf: no clip below)"),
        _clip,
        "a clip from below, which {own} has not",
        True,
    ),
    "epsilon_high": Option(
        (lambda v: v >= 0, "0 or more (inf: no clip above)"),
        lambda a: _clip(a) or a.objective == "cispo",
        "a clip from above, which {own} has not",
        True,
    ),
    "beta": Option(_NOT_NEGATIVE, by_slice=True),
    "correction_low": Option(
        _NOT_NEGATIVE,
        lambda a: a.correction in ("mis", "icepop", *CORRECTION_PAIRS),
        "correction='mis' or 'icepop': tis has a cap alone",
        True,
    ),
    "correction_high": Option(
        _ABOVE, lambda a: a.correction != "none", "a correction (tis, mis, icepop)", True
    ),
    "correction_cap": Option(
        _ABOVE,
        lambda a: a.correction in CORRECTION_PAIRS,
        "two corrections, ('geometric_rejection', 'token_tis'); the cap of one is correction_high",
    ),
    "kl_weight_cap": Option(
        (lambda v: v > 0, "above 0, a ratio (inf: no cap)"),
        lambda a: a.kl_estimator in (None, "k2", "k3+", "reverse", "mse"),
        "kl_estimator='k3+' or 'k2': the others have no weight of the sampler",
    ),
    "nonfinite_limit": Option(
        (lambda v: 0 <= v <= 1, "in [0, 1], a fraction of the loss tokens"),
        lambda a: a.drop_nonfinite,
        "drop_nonfinite=True",
    ),
    "k3_bound": Option(_ABOVE, by_slice=True),
    "delta": Option((lambda v: v > 1, "above 1: a dual clip of 1 or less freezes on-policy tokens")),
    "off_policy_mask_threshold": Option(_ABOVE),
    "veto_floor": Option((lambda v: 0 < v < 1, "in (0, 1), a ratio such as 1e-4")),
    "ewma_centre_of_mass": Option(
        _NOT_NEGATIVE, lambda a: a.objective in _ANCHORED and (a.objective != "minirl" or a.clip), _ANCHOR
    ),
    "prox_beta": Option(_NOT_NEGATIVE, lambda a: a.objective == "decoupled_kl", "objective='decoupled_kl'"),
    "prox_estimator": Option(None, lambda a: a.objective == "decoupled_kl", "objective='decoupled_kl'"),
    "ess_base": Option((lambda v: 0 < v <= 1, "in (0, 1]"), lambda a: a.lr_by_ess, "lr_by_ess=True"),
    "ess_rule": Option(None, lambda a: a.lr_by_ess, "lr_by_ess=True"),
    "ess_floor": Option((lambda v: 0 <= v <= 1, "in [0, 1]"), lambda a: a.lr_by_ess, "lr_by_ess=True"),
    "entropy_keep": Option((lambda v: 0 < v <= 1, "in (0, 1], the fraction of tokens to keep; None: off")),
    "covariance_drop": Option((lambda v: 0 <= v < 1, "in [0, 1), the fraction of tokens dropped; None: off")),
    "bonus_target": Option(_NOT_NEGATIVE),
    "bonus_rate": Option(
        (lambda v: 0 < v < math.inf, "above 0 and finite"),
        lambda a: a.bonus_target is not None,
        "a bonus_target",
    ),
    "bonus_highest": Option(_NOT_NEGATIVE, lambda a: a.bonus_target is not None, "a bonus_target"),
    "num_iterations": Option((lambda v: v >= 1 and v == int(v), "a whole number of 1 or more")),
    "routing_allow_missing": Option(None, lambda a: a.routing_replay != "off", "routing_replay='R2' or 'R3'"),
    "routing_compare": Option(None, lambda a: a.routing_replay != "off", "routing_replay='R2' or 'R3'"),
    "correction_level": Option(
        None, lambda a: a.correction in ("tis", "mis"), "correction='tis' or 'mis': icepop decides by token"
    ),
    "correction_weighs": Option(
        None, lambda a: a.correction == "mis", "correction='mis', which can drop without a weight"
    ),
    "k3_level": Option(None, lambda a: a.k3_bound is not None, "a k3_bound"),
}


def is_read(args: Any, name: str) -> bool:
    """Return whether the settings read the field `name`; if not it would change nothing."""
    return _OPTIONS[name].read_by(args)


def refuse_config(args: Any) -> None:
    """Raise ObjectiveError for a value out of range, UnsupportedError for what the trainer cannot honour."""
    for name, choices in _CHOICES.items():
        if getattr(args, name) not in choices:
            raise ObjectiveError(
                f"{name} must be one of {', '.join(filter(None, choices))}; got {getattr(args, name)!r}"
            )
    for name in _OPTIONS:
        if getattr(args, name) is not None or _default(args, name) is not None:
            _check(name, name, getattr(args, name))
    if args.scale_rewards not in (None, True, False, "group", "batch", "none"):
        raise ObjectiveError(f"scale_rewards must be group, batch or none; got {args.scale_rewards!r}")
    _check_slices(args)
    if args.correction in ("mis", "icepop", *CORRECTION_PAIRS):
        _check_bounds(args)
    for text in (*config_refusals(args), *_unused(args)):
        raise UnsupportedError(f"MiniRLTrainer: {text}")


def _unused(args: Any) -> Iterator[str]:
    """Yield one line for each field that is not at its default and that nothing reads."""
    own = f"objective={args.objective!r}" + ("" if args.clip else " with clip=False")
    for name, option in _OPTIONS.items():
        value = getattr(args, name)
        if not option.read_by(args) and value != _default(args, name):
            needs = option.needs.format(own=own)
            yield f"{name}={value!r} has no effect without {needs}; leave {name} out, or set that"


def _default(args: Any, name: str) -> Any:
    return type(args).__dataclass_fields__[name].default


def _check_bounds(args: Any) -> None:
    """Raise ObjectiveError where the lower bound of the correction is not below the upper one, by slice."""
    names = ("correction_low", "correction_high")
    defaults = zip(names, CORRECTION_BOUNDS[args.correction], strict=True)
    bounds = {n: default if getattr(args, n) is None else getattr(args, n) for n, default in defaults}
    for label, table in {"": {}, **(args.slices or {})}.items():
        low, high = (table.get(name, bounds[name]) for name in names)
        if not low < high:
            where = label and f" of slices[{label!r}]"
            text = f"must be below correction_high; got {low:g} and {high:g} ({args.correction})"
            raise ObjectiveError(f"correction_low{where} {text}")


def _check(name: str, shown: str, value: Any) -> None:
    if (accepted := _OPTIONS[name].range) is None:
        return
    good, words = accepted
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        raise ObjectiveError(f"{shown} must be a number {words}; got {value!r}")
    if math.isnan(value) or not good(float(value)):
        raise ObjectiveError(f"{shown} must be {words}; got {value!r}")


def _check_slices(args: Any) -> None:
    if args.slices is not None and not isinstance(args.slices, dict):
        raise ObjectiveError(
            f"slices must be a table such as {{'post_tool': {{'epsilon_high': 0.1}}}}; got {args.slices!r}"
        )
    allowed = [name for name, option in _OPTIONS.items() if option.by_slice]
    for label, table in (args.slices or {}).items():
        if label not in SLICE_NAMES or not isinstance(table, dict):
            raise ObjectiveError(
                f"slices must name {' and '.join(SLICE_NAMES)} with a table each; got {label!r}: {table!r}"
            )
        for name, value in table.items():
            shown = f"slices[{label!r}][{name!r}]"
            if name not in allowed:
                raise ObjectiveError(f"slices[{label!r}] has {name!r}; it takes {', '.join(allowed)}")
            _check(name, shown, value)
            for text in _slice_needs(args, name):
                raise ObjectiveError(f"{shown} {text}")
            if not is_read(args, name):
                raise UnsupportedError(
                    f"MiniRLTrainer: {shown} has no effect: {_reader(args)} does not read {name}; take it out"
                )


def _slice_needs(args: Any, name: str) -> Iterator[str]:
    if name == "beta" and not args.beta:
        yield "needs beta above 0: TRL scores no reference otherwise"
    by_row = args.correction_level != "token" or args.correction in CORRECTION_PAIRS
    if name.startswith("correction") and (args.correction == "none" or by_row):
        yield "needs a correction with correction_level='token'"
    if name == "k3_bound" and (args.k3_bound is None or args.k3_level != "token"):
        yield "needs k3_bound and k3_level='token'"
    if name == "weight_cap" and args.objective != "minirl":
        yield "is minirl's"


def _reader(args: Any) -> str:
    parts = [f"objective={args.objective!r}"]
    parts += [f"{name}=False" for name in ("importance", "clip") if not getattr(args, name)]
    parts += [f"correction={args.correction!r}"] if args.correction != "none" else []
    return " with ".join(parts)
