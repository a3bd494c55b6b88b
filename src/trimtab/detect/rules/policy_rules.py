"""Rules on the policy as a whole: KL to the reference, entropy, input dependence, gradients, the value model."""

from __future__ import annotations

from trimtab.catalog import bound
from trimtab.detect.detectors.outlier import Outlier
from trimtab.detect.detectors.trend_break import TrendBreak
from trimtab.detect.rules.rule import LONG, MEMORY, Rule, Suppression, beyond, change, excursion, leap

_LEARNS = Suppression("aggregate/reward", 1)
_LEARNT = Suppression("aggregate/reward", 1, settled=True)
_RISES = Suppression("aggregate/reward", 1, recent=int(bound("excuse_recent_fast")))
_RAGEN = "RAGEN, arXiv 2504.20073"

POLICY_RULES: tuple[Rule, ...] = (
    Rule(
        "kl_surge", "aggregate/kl", "all", "aggregate", "kl", "identity", excursion(1, bound("surge"), floor=bound("kl_floor")), "critical",
        "mean KL to the reference grew fourfold within a hundred steps, past 2 nats",
        "The whole policy is leaving the reference at a pace no healthy run of the pilot showed.",
        "Lower the learning rate or raise the KL coefficient; keep the last checkpoint from before `since`.",
        "Runs meant to leave their reference far behind.", "docs/explanation/pilot.md; default, not calibrated", positive=True,
    ),
    Rule(
        "kl_step", "aggregate/kl", "all", "aggregate", "kl", "log", leap(1, min_effect=bound("leap_kl"), longest=bound("arl_leap_kl")), "warning",
        "mean KL to the reference grew fourfold from one handful of steps to the next",
        "No curve of learning does that: something broke between two steps.",
        "Look at what changed at `since`: learning rate, data, a restart, the reference; go back to before it.",
        "A reference that was renewed on purpose: then KL falls first.", "default, not calibrated",
    ),
    Rule(
        "kl_jump", "aggregate/kl", "all", "aggregate", "kl", "log",
        lambda arl: TrendBreak(arl=arl, min_effect=bound("aggregate_growth"), sign=1), "warning",
        "mean KL to the reference grew by half against the line through its last ten values",
        "The fast form of kl_break: ten values of past are enough for a movement this large.",
        "Raise the KL coefficient or lower the learning rate; check which slice carries it.",
        "The first steps of a run, whose KL begins at zero.", "default, not calibrated", excuses=(_LEARNS,), weight=5.0,
    ),
    Rule(
        "kl_leap", "aggregate/kl", "all", "aggregate", "kl", "identity",
        excursion(1, bound("kl_leap"), memory=int(bound("kl_leap_memory")), warmup=int(bound("kl_leap_warmup"))), "warning",
        "mean KL to the reference grew tenfold within thirty steps",
        "The bend of a run's first steps hides such a growth from kl_break.",
        "Raise the KL coefficient or lower the learning rate; check which slice carries it.",
        "A run that has just begun to learn: then the reward rises too, and this is information.", "default, not calibrated", excuses=(_RISES,), positive=True,
    ),
    Rule(
        "kl_break", "aggregate/kl", "all", "aggregate", "kl", "log",
        change(1, lenient=True, min_effect=bound("aggregate_growth")), "warning",
        "mean KL to the reference left its own trend upwards",
        "The whole policy is moving away from the reference faster than before.",
        "Raise the KL coefficient or lower the learning rate; check which slice carries it.",
        "A run that has just begun to learn: then the reward rises too, and this is information.", "default, not calibrated",
        excuses=(_LEARNS,),
    ),
    Rule(
        "kl_climb", "aggregate/kl", "all", "aggregate", "kl", "identity", change(1, lenient=True, min_frac=bound("kl_climb")), "info",
        "mean KL to the reference climbs faster than its own line",
        "Less than a jump: the policy leaves the reference at a new pace.",
        "Compare with the reward and with the learning rate's schedule; look at which slice carries it.",
        "Learning that speeds up.", "rlprobe ref_drift_asymmetry", weight=0.5,
    ),
    Rule(
        "kl_high", "aggregate/kl", "all", "aggregate", "kl", "identity", beyond("kl_high", 1, confirm=LONG), "warning",
        "mean KL to the reference stands above 3 nats a token",
        "However slowly it got there: the reference no longer says anything about this policy.",
        "Raise the KL coefficient, or make a newer reference on purpose; look at the outputs.",
        "A trainer that sums KL over the sequence.", "docs/explanation/pilot.md; default, not calibrated", weight=0.5,
    ),
    Rule(
        "kl_max_break", "aggregate/kl_max", "all", "aggregate", "kl", "identity",
        change(1, lenient=True, min_frac=bound("kl_max_frac")), "warning",
        "the largest KL of a token left its own trend upwards",
        "A few tokens leave the reference while the mean hardly shows it.",
        "Find them in the exemplars; raise the KL coefficient on their slice.",
        "Batches whose size changed: a maximum grows with them.", "rlprobe kl_max", weight=2.0,
    ),
    Rule(
        "entropy_floor", "aggregate/entropy", "all", "aggregate", "entropy", "identity", excursion(-1, bound("quarter"), memory=MEMORY),
        "info", "mean entropy fell under a quarter of what it was",
        "A policy of one answer has nothing left to explore with.",
        "Look at the outputs; raise the entropy bonus, or go back to before `since`.",
        "Tasks with one right answer that the policy has learnt.", _RAGEN, excuses=(_LEARNT,),
    ),
    Rule(
        "entropy_gone", "aggregate/entropy", "all", "aggregate", "entropy", "identity", excursion(-1, bound("entropy_tenth"), memory=MEMORY),
        "warning", "mean entropy fell under a tenth of what it was",
        "A policy of one answer has nothing left to explore with.",
        "Look at the outputs; raise the entropy bonus, or go back to before `since`.",
        "Tasks with one right answer that the policy has learnt.", _RAGEN, excuses=(_LEARNT,),
    ),
    Rule(
        "entropy_collapse", "aggregate/entropy", "all", "aggregate", "entropy", "identity", change(-1, lenient=True, min_frac=bound("entropy_frac")), "warning",
        "mean entropy falls faster than its own trend", "A sudden fall is the start of a collapse to few answers.",
        "Look at entropy by slice, and at the outputs themselves.",
        "A fall while the reward rises is learning, and only information.", _RAGEN, excuses=(_LEARNS, Suppression("aggregate/reward", 1, slow=64, settled=True)),
    ),
    Rule(
        "entropy_break", "aggregate/entropy", "all", "aggregate", "entropy", "log", leap(-1, min_effect=bound("leap_entropy_down")), "warning",
        "mean entropy fell to a third from one handful of steps to the next", "Learning sharpens a policy over tens of steps, not from one to the next.",
        "Look at the outputs of `since`: one answer to everything, or empty ones; go back to before it.",
        "A temperature, a mask or a dataset that was changed on purpose.", "default, not calibrated",
    ),
    Rule(
        "entropy_leap", "aggregate/entropy", "all", "aggregate", "entropy", "log", leap(1, min_effect=bound("leap_entropy")), "warning",
        "mean entropy doubled from one handful of steps to the next", "The fast form of entropy_explosion, which a bent past makes slow.",
        "Look at what changed at `since`: learning rate, data, engine, a restart.",
        "A temperature, a mask or a dataset that was changed on purpose.", "default, not calibrated",
    ),
    Rule(
        "entropy_explosion", "aggregate/entropy", "all", "aggregate", "entropy", "identity", change(1), "warning",
        "mean entropy rises", "A policy that grows noisier while it trains is coming apart.",
        "Look at the outputs after tool results first (ARPO); check the entropy bonus.",
        "An entropy bonus with a target.", "arXiv 2507.19849 (ARPO)",
    ),
    Rule(
        "template_collapse", "aggregate/template_mi", "all", "aggregate", "template", "identity", change(-1), "warning",
        "outputs depend less on their inputs", "Outputs look diverse and no longer answer the question: entropy stays calm.",
        "Filter for prompts with reward variance (SNR-aware filtering); look at outputs of different prompts side by side.",
        "Prompts that became more alike.", "RAGEN-2, arXiv 2604.06268",
    ),
    Rule(
        "template_collapse_text", "distinguish/ngram_retrieval_accuracy", "all", "aggregate", "template", "identity", change(-1),
        "warning", "outputs of one prompt are no longer told apart from outputs of others",
        "The same, from the outputs' n-grams alone, without a second forward pass.",
        "Look at outputs of different prompts side by side.", "Prompts that became more alike.", "RAGEN-2, arXiv 2604.06268",
    ),
    Rule(
        "grad_norm_surge", "aggregate/grad_norm", "all", "aggregate", "gradient", "identity", excursion(1, bound("grad_surge")), "critical",
        "the gradient norm grew eightfold", "Updates are exploding; a collapse by too large steps looks like this.",
        "Check gradient clipping and the learning rate; look at the share of |A w| held by one trajectory.",
        "The first steps after a restart without optimizer state.", "richardli.xyz/rl-collapse, case 1", positive=True,
    ),
    Rule(
        "grad_norm_growth", "aggregate/grad_norm", "all", "aggregate", "gradient", "log", change(1), "warning",
        "the gradient norm grew over its own past", "Updates are growing.",
        "Check gradient clipping and the learning rate; look at the share of |A w| held by one trajectory.",
        "A change of batch size or loss scale.", "richardli.xyz/rl-collapse, case 1",
    ),
    Rule(
        "grad_norm_spike", "aggregate/grad_norm", "all", "aggregate", "gradient", "identity",
        lambda arl: Outlier(arl=arl, ratio=bound("spike_ratio")), "warning",
        "one step's gradient norm is wilder than anything the run has shown, or twentyfold",
        "One batch can undo many.", "Look at that step's exemplars; clip gradients; skip such steps.",
        "Fewer than forty steps of past.", "verl#747", positive=True,
    ),
    Rule(
        "gradient_none", "aggregate/grad_norm", "all", "aggregate", "gradient", "identity",
        beyond("gradient_floor", -1, confirm=LONG), "warning", "there is no gradient at all",
        "Nothing is being learnt: groups without variance, everything clipped or masked, or frozen parameters.",
        "Check zero-variance groups, the loss mask and what the optimizer holds.", "Warm-up with a learning rate of 0 does not stop gradients.",
        "default, not calibrated", weight=0.5,
    ),
    Rule(
        "gradient_vanishing", "aggregate/grad_norm", "all", "aggregate", "gradient", "log", change(-1, lenient=True), "warning",
        "the gradient norm falls away", "No gradient, no learning: groups without variance, saturated rewards, all clipped.",
        "Check zero-variance groups and the clip fraction.",
        "A fall while the reward rises is convergence, and only information.", "default, not calibrated", excuses=(_LEARNT,), floor=bound("gradient_floor"),
    ),
    Rule(
        "gradient_snr_low", "gradient/snr", "all", "tail", "gradient", "log", change(-1), "warning",
        "the gradient's signal-to-noise ratio falls", "What moves the weights is more and more noise.",
        "A larger batch or group; filter prompts without variance.", "Fewer trajectories measured.", "verl PR #5842",
    ),
    Rule(
        "value_loss_growth", "aggregate/value_loss", "all", "aggregate", "value", "log", change(1), "warning",
        "the value model's loss grows", "Advantages from a wrong baseline are noise.",
        "Lower the value model's learning rate; check the reward's scale.", "A reward whose scale changed.", "default, not calibrated",
    ),
    Rule(
        "value_unexplained", "aggregate/value_explained_variance", "all", "aggregate", "value", "identity", change(-1), "warning",
        "the value model explains less of the returns", "The same, seen in explained variance.",
        "Lower the value model's learning rate; check the reward's scale.", "A reward whose scale changed.", "default, not calibrated",
    ),
    Rule(
        "routing_disagreement", "routing/any_layer_changed_frac", "all", "tail", "mismatch", "identity", change(1, min_effect=bound("token_share_change")), "warning",
        "more tokens take other experts in the trainer than they took when sampled",
        "Routing flips make ratios volatile; collapses of mixture-of-experts runs begin so.",
        "Replay routes (R2 or R3).", "Dense models.", "arXiv 2510.11370 (R3)",
    ),
)  # fmt: skip
