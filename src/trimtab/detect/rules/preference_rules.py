"""Rules on preference training (DPO, KTO) and supervised fine-tuning."""

from __future__ import annotations

from trimtab.catalog import bound
from trimtab.detect.rules.rule import Rule, drawdown, mean_shift

_DPO = "DPO, arXiv 2305.18290"

PREFERENCE_RULES: tuple[Rule, ...] = (
    Rule("margin_collapse", "aggregate/margin", family="preference", detector=mean_shift(-1),
        what="the margin between chosen and rejected falls", why="The policy unlearns the preference.",
        advice="Lower the learning rate or beta; check for pairs with swapped labels.",
        not_when="Data that became harder.", reference=_DPO),
    Rule("chosen_logp_falling", "aggregate/chosen_logp", family="preference",
        detector=mean_shift(-1, lenient=True), what="chosen responses grow less likely",
        why="Margins can grow while the chosen answers themselves are unlearnt.",
        advice="Add a supervised term on chosen responses, or a larger beta.",
        not_when="A slow fall at a steady pace is usual in DPO and expected here.",
        reference="arXiv 2402.13228 (DPOP)"),
    Rule("accuracy_falling", "aggregate/preference_accuracy", family="preference",
        detector=mean_shift(-1, min_effect=bound("accuracy_change")), what="fewer pairs are ranked right",
        why="The policy unlearns the preference.",
        advice="Check for swapped labels and for the data's order.", not_when="Data that became harder.",
        reference=_DPO),
    Rule("held_out_loss_turns", "aggregate/held_out_loss", family="gap",
        detector=drawdown(1, min_frac=bound("loss_frac")), what="the held-out loss rose from its best",
        why="Overfitting: what is learnt no longer carries over.",
        advice="Go back to the best checkpoint; fewer epochs, more data.",
        not_when="A held-out set that changed."),
    Rule("gap_growing", "supervised/gap", family="gap", detector=drawdown(1, min_effect=bound("gap_change")),
        what="the gap between held-out and training loss widened from its least",
        why="Overfitting: what is learnt no longer carries over.",
        advice="Stop earlier, fewer epochs, more data.", not_when="A held-out set that changed."),
)  # fmt: skip
