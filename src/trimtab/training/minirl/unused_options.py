"""Settings that would change nothing because what reads them is off: a run must not look as if it had them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from trimtab.training.minirl.numeric_options import knobs_read

_ANCHORED = ("minirl", "decoupled", "decoupled_kl")


def unused(args: Any) -> Iterator[str]:
    """One line for each field that is not at its default and has no reader."""
    for names, read, needs in _readers(args):
        for name in names:
            value = getattr(args, name)
            if not read and value != type(args).__dataclass_fields__[name].default:
                yield f"{name}={value!r} has no effect without {needs}; leave {name} out, or set that"


def _readers(args: Any) -> Iterator[tuple[tuple[str, ...], bool, str]]:
    """(fields, whether something reads them, what would)."""
    on, objective = knobs_read(args), args.objective
    yield ("ess_base", "ess_rule", "ess_floor"), args.lr_by_ess, "lr_by_ess=True"
    yield ("bonus_rate", "bonus_highest"), args.bonus_target is not None, "a bonus_target"
    yield (
        ("routing_allow_missing", "routing_compare"),
        args.routing_replay != "off",
        "routing_replay='R2' or 'R3'",
    )
    yield ("correction_high",), "correction_high" in on, "a correction (tis, mis, icepop)"
    yield ("correction_low",), "correction_low" in on, "correction='mis' or 'icepop': tis has a cap alone"
    yield (
        ("correction_level",),
        args.correction in ("tis", "mis"),
        "correction='tis' or 'mis': icepop looks at tokens",
    )
    yield (
        ("correction_weighs",),
        args.correction == "mis",
        "correction='mis', which can drop without a weight",
    )
    yield ("k3_level",), args.k3_bound is not None, "a k3_bound"
    yield ("prox_beta", "prox_estimator"), objective == "decoupled_kl", "objective='decoupled_kl'"
    yield (
        ("weight_cap",),
        "weight_cap" in on,
        "a weight over mu (minirl with importance, decoupled); set correction",
    )
    yield ("epsilon",), "epsilon" in on, f"a clip from below, which {_named(args)} has not"
    yield ("epsilon_high",), "epsilon_high" in on, f"a clip from above, which {_named(args)} has not"
    yield (
        ("ewma_centre_of_mass",),
        objective in _ANCHORED and (objective != "minirl" or args.clip),
        f"a clip to anchor ({', '.join(_ANCHORED)}), which {_named(args)} has not",
    )


def _named(args: Any) -> str:
    return f"objective={args.objective!r}" + ("" if args.clip else " with clip=False")
