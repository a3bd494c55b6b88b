"""Rules on preference training (DPO, KTO) and supervised fine-tuning."""

from __future__ import annotations

from trimtab.catalog import bound
from trimtab.detect.detectors.drawdown import Drawdown
from trimtab.detect.rules.rule import Rule, change, rare_change

_DPO = "DPO, arXiv 2305.18290"

PREFERENCE_RULES: tuple[Rule, ...] = (
    Rule(
        "margin_collapse", "aggregate/margin", "all", "aggregate", "preference", "identity", change(-1), "warning",
        "the margin between chosen and rejected falls", "The policy unlearns the preference.",
        "Lower the learning rate or beta; check for pairs with swapped labels.", "Data that became harder.", _DPO,
    ),
    Rule(
        "chosen_logp_falling", "aggregate/chosen_logp", "all", "aggregate", "preference", "identity", change(-1, lenient=True),
        "warning", "chosen responses grow less likely", "Margins can grow while the chosen answers themselves are unlearnt.",
        "Add a supervised term on chosen responses, or a larger beta.",
        "A slow fall at a steady pace is usual in DPO and expected here.", "arXiv 2402.13228 (DPOP)",
    ),
    Rule(
        "accuracy_falling", "aggregate/preference_accuracy", "all", "aggregate", "preference", "identity", change(-1, min_effect=bound("accuracy_change")), "warning",
        "fewer pairs are ranked right", "The policy unlearns the preference.", "Check for swapped labels and for the data's order.",
        "Data that became harder.", _DPO,
    ),
    Rule(
        "held_out_loss_turns", "aggregate/held_out_loss", "all", "aggregate", "gap", "identity",
        lambda arl: Drawdown(arl=min(arl, bound("arl_evaluations")), sign=1, min_frac=bound("loss_frac")), "warning",
        "the held-out loss rose from its best", "Overfitting: what is learnt no longer carries over.",
        "Go back to the best checkpoint; fewer epochs, more data.", "A held-out set that changed.", "default, not calibrated",
    ),
    Rule(
        "held_out_loss_rising", "aggregate/held_out_loss", "all", "aggregate", "gap", "identity", rare_change(1, min_frac=bound("held_out_loss_frac")),
        "warning", "the held-out loss rises", "Overfitting: what is learnt no longer carries over.",
        "Stop earlier, fewer epochs, more data.", "A held-out set that changed.", "default, not calibrated",
    ),
    Rule(
        "gap_growing", "supervised/gap", "all", "aggregate", "gap", "identity",
        lambda arl: Drawdown(arl=min(arl, bound("arl_evaluations")), sign=1, min_effect=bound("gap_change")), "warning",
        "the gap between held-out and training loss widened from its least", "Overfitting: what is learnt no longer carries over.",
        "Stop earlier, fewer epochs, more data.", "A held-out set that changed.", "default, not calibrated",
    ),
)  # fmt: skip
