"""Rules on rewards and groups: collapse, jumps that nothing else confirms, groups that teach nothing."""

from __future__ import annotations

from trimtab.catalog import bound
from trimtab.detect.detectors.drawdown import Drawdown
from trimtab.detect.detectors.flatline import Flatline
from trimtab.detect.detectors.plateau import Plateau
from trimtab.detect.detectors.plateau_exit import PlateauExit
from trimtab.detect.rules.rule import (
    LONG,
    MEMORY,
    Rule,
    Suppression,
    beyond,
    change,
    excursion,
    leap,
    rare_change,
)

_LEARNS = Suppression("aggregate/reward", 1, settled=True)
_ROLL = "Check tool failures first, then reward parts; go back to before `since` when the tools are healthy."

REWARD_RULES: tuple[Rule, ...] = (
    Rule(
        "reward_collapse", "aggregate/reward", "all", "aggregate", "reward", "identity",
        excursion(-1, bound("reward_half"), memory=MEMORY, confirm=int(bound("confirm_short"))), "critical",
        "mean reward fell to less than half of its best level", "The run has lost what it had learnt.", _ROLL,
        "Rewards around or below zero, where a half means nothing.", "docs/explanation/pilot.md",
    ),
    Rule(
        "reward_break", "aggregate/reward", "all", "aggregate", "reward", "identity", leap(-1, min_frac=bound("leap_reward"), longest=bound("arl_leap")), "critical",
        "mean reward lost half of its level from one handful of steps to the next",
        "The fast form of reward_collapse, which a bent learning curve makes slow.", _ROLL,
        "Rewards around or below zero, where a half means nothing; a curriculum that has just become harder.", "default, not calibrated",
    ),
    Rule(
        "reward_drop", "aggregate/reward", "all", "aggregate", "reward", "identity", change(-1, min_frac=bound("reward_frac")),
        "warning", "mean reward fell below its own past", "Either the policy got worse or the environment did.", _ROLL,
        "A curriculum that has just become harder.", "default, not calibrated",
    ),
    Rule(
        "held_out_drop", "aggregate/held_out_reward", "all", "aggregate", "gap", "identity",
        rare_change(-1, min_frac=bound("reward_frac")), "critical",
        "the held-out score fell", "What counts got worse, whatever the training reward says.",
        "Stop; compare outputs with those of the last checkpoint from before `since`.",
        "A held-out set that changed.", "default, not calibrated",
    ),
    Rule(
        "held_out_falls", "aggregate/held_out_reward", "all", "aggregate", "gap", "identity",
        lambda arl: Drawdown(arl=min(arl, bound("arl_evaluations")), sign=-1, min_frac=bound("reward_frac")), "warning",
        "the held-out score fell back from its best",
        "Beside a training reward that holds, this is overfitting or hacking.",
        "Compare outputs with those of the best checkpoint; score them with another judge.",
        "A held-out set that changed.", "Goodhart under RL: arXiv 2210.10760", also=("hacking",),
    ),
    Rule(
        "reward_part_falls", "reward_part/mean", "reward/*", "aggregate", "format", "identity",
        change(-1, lenient=True, min_frac=bound("reward_frac")), "warning", "one part of the reward falls",
        "The total hides a part that is given up for another.",
        "Look at the weights of the parts, and at outputs before and after `since`.",
        "A part whose scale changed on purpose; a fall of the whole reward, which reward_drop tells.", "rlprobe format_gaming",
        also=("hacking",), weight=2.0,
    ),
    Rule(
        "reward_part_jump", "reward_part/mean", "reward/*", "aggregate", "format", "identity",
        change(1, lenient=True, min_frac=bound("reward_jump")), "info", "one part of the reward rises faster than its own trend",
        "Cheap parts, like format, can be all that is learnt.",
        "Compare it with the part that counts; lower its weight when that one stands still.",
        "All parts rising together.", "rlprobe format_gaming", also=("hacking",),
    ),
    Rule(
        "reward_part_idle", "reward_part/mean", "reward/*", "aggregate", "format", "identity",
        beyond("reward_part_idle", -1, confirm=int(bound("idle_steps"))), "info", "one part of the reward has given next to nothing for long",
        "Nothing is learnt from a part that is never earned; the others are then all there is.",
        "Easier tasks, a denser reward, or drop the part.", "Penalties, and bonuses that are meant to be rare.",
        "rldoctor reward_composition", weight=0.5,
    ),
    Rule(
        "reward_stands_still", "aggregate/reward", "all", "aggregate", "plateau", "identity", lambda _: Flatline(), "warning",
        "the reward has been the same number for a hundred steps", "All is solved, nothing is, or the reward is broken: no batch differs from another.",
        "Read outputs and their rewards; check that the reward can be earned, and lost.", "A reward that is logged rarely and repeated in between.",
        "default, not calibrated", weight=0.5,
    ),
    Rule(
        "reward_plateau", "aggregate/reward", "all", "aggregate", "plateau", "identity", lambda _: Plateau(), "info",
        "the reward hardly rose over 128 steps, against its best 128 before", "Learning is over, or stuck.",
        "Look at groups without variance, at entropy and at the clip fraction; change tasks or end the run.",
        "A reward at its maximum.", "default, not calibrated", weight=0.5,
    ),
    Rule(
        "reward_jump", "aggregate/reward", "all", "aggregate", "hacking", "identity",
        change(1, lenient=True, min_frac=bound("reward_jump")), "warning",
        "the training reward rises faster than its own trend, and no held-out score rises with it",
        "A reward that jumps alone is the usual first sign of an exploited judge.",
        "Read twenty of the best-rewarded outputs; score them with another judge; look at length and format.",
        "A held-out score that rises too makes this information; so does the lack of one to compare with.",
        "verl#7004, TRL#6350", excuses=(Suppression("aggregate/held_out_reward", 1, least=0.5, absent=True),),
    ),
    Rule(
        "reward_length_coupling", "aggregate/reward_length_corr", "all", "aggregate", "hacking", "identity", change(1), "warning",
        "reward and length go together more than they did", "Longer answers are being paid for.",
        "Add a length penalty or normalise the loss (Dr. GRPO); read the longest rewarded outputs.",
        "Tasks where longer answers are truly better.", "Dr. GRPO, arXiv 2503.20783",
    ),
    Rule(
        "reward_length_high", "aggregate/reward_length_corr", "all", "aggregate", "hacking", "identity",
        beyond("reward_length_corr", 1, confirm=LONG), "warning",
        "reward and length are strongly correlated", "Longer answers are being paid for.",
        "Add a length penalty or normalise the loss (Dr. GRPO); read the longest rewarded outputs.",
        "Tasks where longer answers are truly better.", "post-training-toolkit (its bound, 0.6)", weight=0.5,
    ),
    Rule(
        "reward_spread_falling", "aggregate/reward_std", "all", "aggregate", "groups", "identity",
        change(-1, lenient=True, min_frac=bound("spread_frac")), "warning", "rewards within a group grow alike", "Spread within groups falls before the mean does, then entropy, then gradients.",
        "Filter for prompts with variance; check the reward's resolution.",
        "A fall while the reward rises is learning, and only information.", "RAGEN, arXiv 2504.20073", excuses=(_LEARNS,),
    ),
    Rule(
        "groups_without_gradient", "aggregate/zero_std_frac", "all", "aggregate", "groups", "identity",
        change(1, lenient=True, min_effect=bound("group_share_change")), "warning", "more groups give no gradient", "Groups of equal rewards teach nothing.",
        "Dynamic sampling (DAPO): draw prompts until groups vary.",
        "A rise while the reward rises is learning, and only information.", "DAPO, arXiv 2503.14476", excuses=(_LEARNS,),
    ),
    Rule(
        "groups_mostly_flat", "aggregate/zero_std_frac", "all", "aggregate", "groups", "identity",
        beyond("zero_std_note", 1, confirm=LONG), "info", "three groups in five give no gradient",
        "Tasks are mostly solved, or mostly hopeless: the rest of the batch is paid for and not used.",
        "Harder or easier tasks; dynamic sampling.", "Small groups of a good policy.", "DAPO, arXiv 2503.14476; rldoctor too_hard",
        weight=0.5,
    ),
    Rule(
        "group_collapse", "aggregate/zero_std_frac", "all", "aggregate", "groups", "identity",
        beyond("zero_std_frac", 1, confirm=LONG), "warning", "most groups give no gradient",
        "The batch is nearly empty of signal: tasks are all solved, or none is.",
        "Harder or easier tasks; dynamic sampling.", "The end of a curriculum.", "DAPO, arXiv 2503.14476", weight=0.5, excuses=(_LEARNS,),
    ),
    Rule(
        "advantage_spread_falling", "aggregate/advantage_std", "all", "aggregate", "groups", "identity", change(-1, lenient=True),
        "warning", "advantages shrink", "Without spread in the advantages there is no direction.",
        "Check groups without variance and the advantage's normalisation.", "Advantages normalised a batch.", "rlprobe adv_collapse",
        excuses=(_LEARNS,),
    ),
    Rule(
        "advantage_spread_gone", "aggregate/advantage_std", "all", "aggregate", "groups", "identity", excursion(-1, bound("spread_fifth"), memory=MEMORY),
        "warning", "advantages fell to less than a fifth of their spread",
        "Too far for learning to explain: without spread in the advantages there is no direction.",
        "Check groups without variance and the advantage's normalisation.",
        "A change of the advantage's scale.", "rlprobe adv_collapse",
    ),
    Rule(
        "correct_likelihood_falling", "aggregate/correct_logp", "all", "aggregate", "likelihood", "identity", change(-1), "critical",
        "the likelihood of correct responses falls", "Lazy likelihood displacement: the reward looks fine early and then all goes.",
        "Add the likelihood-preserving penalty (LLDS); weaken negative gradients on similar responses.",
        "Few correct responses a step.", "LLD, arXiv 2512.04220",
    ),
    Rule(
        "too_hard", "aggregate/solved_none_frac", "all", "aggregate", "groups", "identity",
        beyond("zero_std_frac", 1, confirm=LONG), "warning", "hardly any group has a solved rollout", "There is nothing to learn from.",
        "Easier tasks first; check that the reward can be earned at all.", "The first steps of a hard curriculum.", "prime-rl solved_none",
        weight=0.5,
    ),
    Rule(
        "late_jump", "aggregate/reward", "all", "aggregate", "jump", "identity", lambda arl: PlateauExit(arl=arl), "info",
        "the reward jumped after a long plateau", "Grokking looks like this, and so does a hack.",
        "Look at held-out score and outputs before celebrating.", "A curriculum that changed.", "default, not calibrated", weight=0.5,
    ),
)  # fmt: skip
