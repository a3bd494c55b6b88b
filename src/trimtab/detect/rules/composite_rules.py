"""Rules on composite readings: several readings that move together, each by less than its own rule needs."""

from __future__ import annotations

from trimtab.detect.detectors.composite_reading import FAMILIES
from trimtab.detect.rules.rule import LEARNS, LEARNT, SLOWLY, Rule, Suppression, mean_shift

_HELD_OUT = Suppression("aggregate/held_out_reward", 1, min_score=0.5, absent=True)
_LONGER = Suppression("aggregate/length", 1)


def _rule(name: str, family: str, what: str, advice: str, *suppressions: Suppression) -> Rule:
    """Return the rule on the composite reading `name`, of the diagnosis `family`."""
    return Rule(
        f"{name}_together", f"joint/{name}", family=family, what=what, advice=advice,
        kind="tail" if name in ("post_tool", "mismatch") else "aggregate",
        detector=mean_shift(1, lenient=True), suppressions=suppressions, members=FAMILIES[name],
        why="One trouble moves several readings: their sum leaves the noise before any of them does.",
        not_when="Members with strongly correlated noise: their sum then scatters more than expected.",
    )  # fmt: skip


COMPOSITE_RULES: tuple[Rule, ...] = (
    _rule("post_tool", "post_tool", "post-tool tail and lagged drift rise together",
          "Constrain the tools' outputs; see post_tool_tail_growth.", SLOWLY),
    _rule("support", "support", "post-tool tail and unsupported tokens rise together",
          "Constrain the tools' outputs; see support_falling.", SLOWLY),
    _rule("mismatch", "mismatch", "the engines' disagreement rises on several measures at once",
          "Compare the engines; see mismatch_surge.", SLOWLY),
    _rule("staleness", "staleness", "age of tokens, policy movement and clipping rise together",
          "Fewer updates a batch, a smaller learning rate."),
    _rule("groups", "groups", "groups lose their spread on several measures at once",
          "Filter for prompts with variance; see groups_without_gradient.", LEARNT),
    _rule("outcome", "reward", "the reward falls while gradients grow",
          "Check tools first; go back to before `since`."),
    _rule("likelihood", "likelihood", "correct responses grow less likely while the reward falls",
          "See correct_likelihood_falling."),
    _rule("gradient", "gradient", "the gradient grows and rests on fewer trajectories",
          "Clip gradients; look at the exemplars."),
    _rule("vanishing", "gradient", "gradient and advantages shrink together",
          "Check groups without variance and the clip fraction.", LEARNS),
    _rule("tools", "tools", "tools fail or slow down while the reward falls",
          "Test the tools under load; see tool_failures."),
    _rule("tool_use", "tools", "tool calls die out",
          "Check failures and latency; see tool_use_dies.", SLOWLY),
    _rule("text", "length", "responses grow longer, are cut, repeat, and are paid for it",
          "Read the longest outputs; see length_growth.", LEARNS),
    _rule("hacking", "hacking", "reward rises together with its coupling to length",
          "Read the best-rewarded outputs; see reward_jump.", _HELD_OUT),
    _rule("template", "template", "outputs depend less on inputs while rewards grow alike",
          "See template_collapse.", LEARNS),
    _rule("entropy", "entropy", "entropy falls and rewards within groups grow alike",
          "See entropy_collapse.", LEARNT),
    _rule("looping", "repetition", "entropy falls and text repeats",
          "Read the outputs; see repetition.", LEARNS),
    _rule("value", "value", "the value model gets worse on both measures",
          "Lower its learning rate; check the reward's scale."),
    _rule("preference", "preference", "margin and chosen likelihood fall together", "See margin_collapse."),
    _rule("throughput", "throughput", "throughput falls and steps take longer",
          "Compare ranks, memory and tool latency.", _LONGER),
)  # fmt: skip
