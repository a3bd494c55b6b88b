"""Rules on joint readings: several readings of one trouble, each moving too little to be told from noise alone."""

from __future__ import annotations

from trimtab.detect.detectors.composite_reading import FAMILIES
from trimtab.detect.rules.rule import Rule, Suppression, change

_LEARNS = (Suppression("aggregate/reward", 1),)
_LEARNT = (Suppression("aggregate/reward", 1, settled=True),)
_SLOWLY = (Suppression("aggregate/reward", 1, slow=64),)
_WHAT: dict[str, tuple[str, str, str, tuple[Suppression, ...]]] = {
    # family: (diagnosis, what moves, what to do first, excuses)
    "post_tool": ("post_tool", "post-tool tail and lagged drift rise together", "Constrain the tools' outputs; see post_tool_tail_growth.", _SLOWLY),
    "support": ("support", "post-tool tail and unsupported tokens rise together", "Constrain the tools' outputs; see support_falling.", _SLOWLY),
    "mismatch": ("mismatch", "the engines' disagreement rises on several measures at once", "Compare the engines; see mismatch_surge.", _SLOWLY),
    "staleness": ("staleness", "age of tokens, policy movement and clipping rise together", "Fewer updates a batch, a smaller learning rate.", ()),
    "groups": ("groups", "groups lose their spread on several measures at once", "Filter for prompts with variance; see groups_without_gradient.", _LEARNT),
    "outcome": ("reward", "the reward falls while gradients grow", "Check tools first; go back to before `since`.", ()),
    "likelihood": ("likelihood", "correct responses grow less likely while the reward falls", "See correct_likelihood_falling.", ()),
    "gradient": ("gradient", "the gradient grows and rests on fewer trajectories", "Clip gradients; look at the exemplars.", ()),
    "vanishing": ("gradient", "gradient and advantages shrink together", "Check groups without variance and the clip fraction.", _LEARNS),
    "tools": ("tools", "tools fail or slow down while the reward falls", "Test the tools under load; see tool_failures.", ()),
    "tool_use": ("tools", "tool calls die out", "Check failures and latency; see tool_use_dies.", _SLOWLY),
    "text": ("length", "responses grow longer, are cut, repeat, and are paid for it", "Read the longest outputs; see length_growth.", _LEARNS),
    "hacking": ("hacking", "reward rises together with its coupling to length", "Read the best-rewarded outputs; see reward_jump.", (Suppression("aggregate/held_out_reward", 1, least=0.5, absent=True),)),
    "template": ("template", "outputs depend less on inputs while rewards grow alike", "See template_collapse.", _LEARNS),
    "entropy": ("entropy", "entropy falls and rewards within groups grow alike", "See entropy_collapse.", _LEARNT),
    "looping": ("repetition", "entropy falls and text repeats", "Read the outputs; see repetition.", _LEARNS),
    "value": ("value", "the value model gets worse on both measures", "Lower its learning rate; check the reward's scale.", ()),
    "preference": ("preference", "margin and chosen likelihood fall together", "See margin_collapse.", ()),
    "throughput": ("throughput", "throughput falls and steps take longer", "Compare ranks, memory and tool latency.", (Suppression("aggregate/length", 1),)),
}  # fmt: skip

COMPOSITE_RULES: tuple[Rule, ...] = tuple(
    Rule(
        f"{family}_together", f"joint/{family}", "all", "tail" if family in ("post_tool", "mismatch") else "aggregate",
        diagnosis, "identity", change(1, lenient=True), "warning", what,
        "One trouble moves several readings; together they rise above the noise before any of them does alone.", advice,
        "Members whose noise is strongly correlated: the sum then scatters more than it should at first.", "default, not calibrated",
        excuses=excuses, members=FAMILIES[family],
    )
    for family, (diagnosis, what, advice, excuses) in _WHAT.items()
)  # fmt: skip
