"""Rules on composite readings: several readings that move together, each by less than its own rule needs."""

from __future__ import annotations

from trimtab.detect.detectors.composite_reading import FAMILIES
from trimtab.detect.rules.rule import LEARNS, LEARNT, Rule, Suppression, mean_shift

_HELD_OUT = Suppression("aggregate/held_out_reward", 1, min_score=0.5, absent=True)
_LONGER = Suppression("aggregate/length", 1)


def _rule(name: str, family: str, what: str, advice: str, *suppressions: Suppression) -> Rule:
    """Return the rule on the composite reading `name`, of the diagnosis `family`."""
    return Rule(
        f"{name}_together", f"joint/{name}", family=family, what=what, advice=advice,
        detector=mean_shift(1, lenient=True), suppressions=suppressions, members=FAMILIES[name],
        why="One trouble moves several readings: their sum leaves the noise before any of them does.",
        not_when="Members with strongly correlated noise: their sum then scatters more than expected.",
    )  # fmt: skip


COMPOSITE_RULES: tuple[Rule, ...] = (
    _rule("outcome", "reward", "the reward falls while gradients grow",
          "Check tools first; go back to before `since`."),
    _rule("vanishing", "gradient", "gradient and advantages shrink together",
          "Check groups without variance and the clip fraction.", LEARNS),
    _rule("text", "length", "responses grow longer, are cut, repeat, and are paid for it",
          "Read the longest outputs; see length_growth.", LEARNS),
    _rule("entropy", "entropy", "entropy falls and rewards within groups grow alike",
          "See entropy_collapse.", LEARNT),
)  # fmt: skip
