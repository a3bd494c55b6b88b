"""Every number some rule compares with, with unit, derivation and source."""

from __future__ import annotations

import math

from trimtab.catalog.definitions import UNCALIBRATED, Bound

BOUNDS: dict[str, Bound] = {
    "arl": Bound(
        1_000.0,
        "windows between false alarms, each rule",
        "per-look level 1/arl of a one-sided Student-t prediction bound, so alarms of a stationary run of independent "
        "windows are at most one in arl windows a rule; autocorrelated windows alarm more often",
        "default, not calibrated; confirmed by tests/detect and benchmarks",
    ),
    "baseline": Bound(
        10.0,
        "windows",
        "the t bound with 6 degrees of freedom is 5.2 scales at level 1/1000; fewer windows make it "
        "useless, more delay the first verdict",
        UNCALIBRATED,
    ),
    "confirm": Bound(2.0, "consecutive windows", "one window may hold one wild trajectory", UNCALIBRATED),
    "tail_growth": Bound(
        math.log(2.0),
        "log of a ratio",
        "smallest growth of the tail ratio worth a person's attention: 2x. A healthy, learning lab run (constrained arm, two "
        "seeds) let the p95 ratio grow by 1.8x over 100 steps",
        "default, not calibrated; docs/explanation/pilot.md will calibrate it",
    ),
    "aggregate_growth": Bound(
        math.log(1.5),
        "log of a ratio",
        "smallest change of an aggregate worth a person's attention: 1.5x",
        UNCALIBRATED,
    ),
    "reward_frac": Bound(
        0.05,
        "share of the mean reward",
        "smallest fall of the reward worth an alarm, so that a saturated reward of no scatter does not alarm at 0.1 %",
        "default, not calibrated",
    ),
    "lagged_growth": Bound(
        math.log(2.0), "log of a ratio", "smallest growth of lagged drift worth attention: 2x", UNCALIBRATED
    ),
    "unseen_memory": Bound(
        0.7,
        "lag-1 correlation",
        "what a series may have and few values not show; falls to nothing at memory_values. On 400 healthy logs of the tuning half "
        "it took false alarms from 114 to 73",
        "default, not calibrated; tuned on the bench's tuning half",
    ),
    "memory_values": Bound(
        256.0, "values", "the past a change is held against; as many show their own correlation", UNCALIBRATED
    ),
    "clear_frac": Bound(
        0.5,
        "share of the bound",
        "an alarm clears when the excess falls under half of what raised it",
        UNCALIBRATED,
    ),
    "failed_frac": Bound(
        0.1,
        "share of steps at which the monitor itself failed",
        "above it a quiet run is blind, not healthy",
        "default, not calibrated",
    ),
    "silence": Bound(
        3.0, "times the longest gap seen so far", "a column sampled at a cadence has gaps of its own", UNCALIBRATED
    ),
    "silence_chance": Bound(
        1e-6,
        "probability",
        "how unlikely an absence must be for a column that comes by chance at a share p of the steps: log(1e-6) / log(1 - p) of them, "
        "14 for p of 0.63, 132 for p of 0.1; measured, an alarm in 1 of 3,000 runs of 300 or 1,000 steps at p of 0.1 or 0.3 (detect/presence.py)",
        UNCALIBRATED,
    ),
    "silence_deviate": Bound(2.0, "normal deviates", "how far below the share seen so far p may lie (Wilson's interval)", UNCALIBRATED),
    "silence_cadence": Bound(
        6.0,
        "arrivals",
        "so many at equal gaps over one step are a cadence: one that comes by chance does so once in 1,000 at most",
        UNCALIBRATED,
    ),
    "silent_rank": Bound(
        20.0,
        "steps",
        "how far a rank's record may lie behind the others' before the run counts as blind there",
        UNCALIBRATED,
    ),
    "damage_steps": Bound(
        20.0, "steps", "whole steps after a damaged or lost row until the run counts as watched again; the loss is still stated", UNCALIBRATED
    ),
    "vanished_s": Bound(
        600.0, "seconds without a new row", "a run without an end that is silent for longer has stopped: a checkpoint or an evaluation takes less", UNCALIBRATED
    ),
    "vanished_steps": Bound(10.0, "median intervals between steps", "the same, for runs of slow steps", UNCALIBRATED),
    "vanished_longest": Bound(2.0, "longest intervals between steps", "the same, for runs that pause to evaluate", UNCALIBRATED),
    "zero_drift": Bound(
        3.0,
        "windows",
        "drift of exactly zero in so many windows is a wiring mistake or a frozen policy",
        UNCALIBRATED,
    ),
    "silence_unknown": Bound(
        100.0,
        "steps",
        "allowed absence of a column seen fewer than three times, whose cadence is unknown",
        UNCALIBRATED,
    ),
    "near_support_5": Bound(
        -5.0,
        "nats",
        "exp(-5) = 0.7 %: the reference gives the token less than one chance in 148",
        "default, not calibrated",
    ),
    "near_support_10": Bound(-10.0, "nats", "exp(-10) = 0.005 %", "default, not calibrated"),
    "tail_floor": Bound(
        1e-4,
        "nats",
        "the noise of a float32 log-softmax recomputed in another order (measured 5.6e-6 to 9.8e-6) with a margin of ten; "
        "a text tail below it is raised to it before a ratio is taken",
        UNCALIBRATED,
    ),
    "tool_rare_frac": Bound(
        0.01, "share of the window's calls; of a log's episodes", "a required tool below it is called rarely", UNCALIBRATED
    ),
    "tool_known_calls": Bound(10.0, "calls", "before them a name nobody declared may be a slip of the policy's: it cannot be abandoned", UNCALIBRATED),
    "tool_abandoned_steps": Bound(20.0, "steps", "two windows of tool readings without a call", UNCALIBRATED),
    "clip": Bound(0.2, "1", "PPO's clip range", "arXiv 1707.06347"),
    "mismatch_small": Bound(
        0.05, "nats, p99 of |mismatch|", "tokens sampled by mu stand for tokens of pi_old within 5 %", UNCALIBRATED
    ),
    "budget": Bound(
        100_000.0, "steps between false alarms of all rules together",
        "split over rules and slices by weight (detect/rule.py, split); benchmarks/detectors.py measures what comes of it", UNCALIBRATED,
    ),
    "arl_measured": Bound(
        1_000.0, "windows between false alarms",
        "of a growth rule on windows with bootstrapped intervals: their scatter cannot be underestimated, so a tenth of the "
        "usual caution does", UNCALIBRATED,
    ),
    "suppression": Bound(
        2.0, "normal deviates", "another reading counts as moving along above it; one in forty by chance", UNCALIBRATED
    ),
    "suppression_recent": Bound(32.0, "values", "the fewest of the other reading's last values that are held against the 64 before them", UNCALIBRATED),
    "suppression_recent_fast": Bound(16.0, "values", "the same for alarms that come within a few steps", UNCALIBRATED),
    "settled_near": Bound(0.95, "share of the best mean of ten values", "a reading this near to its best still stands there", UNCALIBRATED),
    "settled_rise": Bound(1.2, "times the first mean of ten values", "a reading that rose less has learnt nothing that could explain an alarm", UNCALIBRATED),
    "rounding": Bound(1e-6, "share of the level", "what single precision may make of a constant does not count as movement", "IEEE 754: 2^-23 is 1.2e-7"),
    "tail_change": Bound(
        math.log(1.25), "log of a ratio", "smallest change of slope of a tail that grows anyway worth attention", UNCALIBRATED
    ),
    "kl_floor": Bound(
        2.0, "nats, mean KL a token", "pilot, tuning half: healthy runs without staleness end below it but for one; collapses pass 5", UNCALIBRATED
    ),
    "kl_high": Bound(
        3.0, "nats, mean KL a token", "20-fold on average; healthy pilot runs end below 2 but for one", UNCALIBRATED
    ),
    "spike_ratio": Bound(20.0, "times the median", "whatever the run has thrown before, one step of twenty medians is worth a look", UNCALIBRATED),
    "length_growth": Bound(math.log(2.0), "log of a ratio", "responses twice as long as at the start", UNCALIBRATED),
    "reward_part_idle": Bound(0.05, "1", "a part of the reward that is earned less than once in twenty", UNCALIBRATED),
    "arl_leap": Bound(
        300_000.0, "values between false alarms",
        "of the reward's leap, whose noise is wide: it must also be half of the level, which healthy series hardly do; on 600 "
        "generated healthy logs, 450,000 values, it spoke once; on the bench's 241,040 healthy steps twice", UNCALIBRATED,
    ),
    "arl_leap_kl": Bound(
        1_000_000.0, "values between false alarms",
        "the same for KL, fourfold: a rarer chance, since a healthy run of the pilot (tuning half) has a KL that jumps tenfold from step to step", UNCALIBRATED,
    ),
    "leap_reward": Bound(0.5, "share of the level before", "half of the reward from one handful of values to the next", UNCALIBRATED),
    "leap_kl": Bound(math.log(4.0), "log of a ratio", "KL to the reference fourfold from one handful of values to the next", UNCALIBRATED),
    "leap_entropy": Bound(math.log(2.0), "log of a ratio", "entropy doubled from one handful of values to the next", UNCALIBRATED),
    "leap_entropy_down": Bound(math.log(3.0), "log of a ratio", "a third of the entropy; learning halves it over tens of steps", UNCALIBRATED),
    "joint_member": Bound(1.5, "normal deviates", "a member that moved less has not moved: one in fifteen by chance", UNCALIBRATED),
    "joint_recent": Bound(8.0, "values", "the fewest of a member's last values that are held against those before: the shortest window of the joint rules", UNCALIBRATED),
    "arl_evaluations": Bound(
        5_000.0, "evaluations between false alarms",
        "evaluations are so few that one in 5,000 of them is one in 50,000 steps and more; measured on healthy generated logs (tuning half): "
        "2 in 24,000; 3 in 18,000 at a correlation of 0.5, many above", UNCALIBRATED,
    ),
    "plateau_gain": Bound(
        0.25, "share of the best rise over 128 values so far", "a line that can have risen by less has all but stopped", UNCALIBRATED
    ),
    "unhealthy": Bound(
        4.0, "rules in alarm at the same time", "none of 200 healthy generated logs of 600 steps (tuning half) had so many at once", UNCALIBRATED
    ),
    "unhealthy_critical": Bound(2.0, "rules in alarm at the same time", "where one of them is critical; as above", UNCALIBRATED),
    "confirm_short": Bound(5.0, "values in a row beyond a bound", "a level, not a moment", UNCALIBRATED),
    "confirm_long": Bound(10.0, "values in a row beyond a bound", "where single values scatter widely", UNCALIBRATED),
    "idle_steps": Bound(100.0, "values in a row", "a part of the reward that is never earned", UNCALIBRATED),
    "memory": Bound(100.0, "values", "how far back an excursion looks for the best level", UNCALIBRATED),
    "long_memory": Bound(400.0, "values", "the same where the fall may be slow", UNCALIBRATED),
    "reward_half": Bound(0.5, "share of the best level", "the pilot's definition of a collapse", "docs/explanation/pilot.md"),
    "quarter": Bound(0.25, "share of the best level", "entropy or tool calls that are nearly gone", UNCALIBRATED),
    "entropy_tenth": Bound(0.1, "share of the best level", "a healthy pilot run falls under a quarter while it learns", UNCALIBRATED),
    "spread_fifth": Bound(0.2, "share of the best level", "advantages whose spread learning does not explain", UNCALIBRATED),
    "grad_surge": Bound(8.0, "ratio", "eightfold within a hundred steps: no healthy pilot run", UNCALIBRATED),
    "mismatch_surge": Bound(10.0, "ratio", "tenfold within a hundred steps", "richardli.xyz/rl-collapse"),
    "mismatch_floor": Bound(1e-2, "nats, the engines' KL", "below it nothing has happened in the published cases", "richardli.xyz/rl-collapse"),
    "length_frac": Bound(0.03, "share of the level", "smallest movement of the length worth a look", UNCALIBRATED),
    "tool_calls_frac": Bound(0.03, "share of the level", "smallest fall of tool calls worth a look", UNCALIBRATED),
    "entropy_frac": Bound(0.06, "share of the level", "smallest fall of entropy worth a look: healthy generated logs wander by less", UNCALIBRATED),
    "staleness_frac": Bound(0.05, "share of the level", "smallest growth of the tokens' age worth a look", UNCALIBRATED),
    "kl_climb": Bound(0.15, "share of the level", "smallest climb of KL off its line worth a note", UNCALIBRATED),
    "kl_max_frac": Bound(0.05, "share of the level", "smallest climb of the largest KL off its line worth a look", UNCALIBRATED),
    "loss_frac": Bound(0.02, "share of the best level", "smallest rise of a held-out loss from its best worth a look", UNCALIBRATED),
    "held_out_loss_frac": Bound(0.005, "share of the level", "smallest rise of a held-out loss worth a look", UNCALIBRATED),
    "throughput_change": Bound(0.03, "log of a ratio", "3 %: below it machines wander", UNCALIBRATED),
    "tool_failure_change": Bound(0.1, "share of calls", "smallest rise of one tool's failures over its best windows worth a look", UNCALIBRATED),
    "tool_window_calls": Bound(8.0, "calls", "a share of fewer calls is hardly one", UNCALIBRATED),
    "kl_leap": Bound(10.0, "ratio", "tenfold, against the calmest of so few steps", UNCALIBRATED),
    "kl_leap_memory": Bound(30.0, "values", "how short a past is looked at: a slower growth is a trend", UNCALIBRATED),
    "kl_leap_warmup": Bound(20.0, "values", "KL begins at 0, so any growth from there is a large ratio", UNCALIBRATED),
    "agree_steps": Bound(200.0, "steps", "alarms further apart are not of one trouble", UNCALIBRATED),
    "judged_readings": Bound(3.0, "readings", "a log of which fewer were judged is not called healthy, however many rules read them", UNCALIBRATED),
    "share_floor": Bound(0.02, "share", "added before the log of a share that may be 0: below it shares are compared by difference", UNCALIBRATED),
    "share_change": Bound(0.07, "log of a ratio", "smallest rise of such a share worth a look: from none to 0.15 %, from 10 to 10.9 %", UNCALIBRATED),
    "clip_floor": Bound(0.001, "share of tokens", "the same floor for tokens clipped or without support", UNCALIBRATED),
    "gradient_floor": Bound(1e-6, "the gradient's norm", "a norm of 0, a batch without gradient, is that small", UNCALIBRATED),
    "void_turn_change": Bound(0.02, "share of turns", "smallest rise of void turns worth a look", UNCALIBRATED),
    "token_share_change": Bound(0.005, "share of tokens", "smallest rise of retokenised or re-routed tokens worth a look", UNCALIBRATED),
    "group_share_change": Bound(0.01, "share of groups", "smallest rise of groups without gradient worth a look", UNCALIBRATED),
    "spread_frac": Bound(0.02, "share of the level", "smallest fall of the rewards' spread worth a look", UNCALIBRATED),
    "accuracy_change": Bound(0.02, "share of pairs", "smallest fall of the accuracy worth a look", UNCALIBRATED),
    "gap_change": Bound(0.3, "nats", "smallest widening of the gap to the held-out loss worth a look", UNCALIBRATED),
    "reward_jump": Bound(0.1, "share of the level", "smallest break of the reward's trend worth a look", UNCALIBRATED),
    "surge": Bound(4.0, "ratio", "growth within a hundred windows that no healthy run of the pilot showed", UNCALIBRATED),
    "drift_floor": Bound(
        0.5, "nats, p95 of |drift|", "half a nat at p95: healthy pilot runs at 2e-4 end below it in text and constrained tools", UNCALIBRATED
    ),
    "ess_frac": Bound(0.3, "share", "verl's documented alarm number, here on raw weights", "verl docs, rollout_corr"),
    "khat": Bound(
        0.7, "1", "min(1 - 1/log10 n, 0.7) for n of 2,200 and more", "Vehtari et al. 2024, arXiv 1507.02646"
    ),
    "clip_frac": Bound(0.2, "share", "20 % with several epochs a batch", "Hilton et al. 2021, arXiv 2110.00641"),
    "zero_std_frac": Bound(0.8, "share of groups", "four of five groups give no gradient", UNCALIBRATED),
    "zero_std_note": Bound(0.6, "share of groups", "three of five groups give no gradient", UNCALIBRATED),
    "reward_length_corr": Bound(0.6, "1", "|r| above which the peers call it hacking", "post-training-toolkit 7ab9855"),
    "truncated_frac": Bound(0.3, "share", "three of ten responses are cut", UNCALIBRATED),
    "tool_failure_frac": Bound(0.2, "share of calls", "one call in five", "post-training-toolkit 7ab9855"),
    "abandoned_steps": Bound(100.0, "steps", "a required tool unused for so long", UNCALIBRATED),
    "slowest_rank_ratio": Bound(1.5, "ratio", "half as slow again as the median rank", UNCALIBRATED),
    "expanded_bytes": Bound(
        33_554_432.0, "bytes, 32 MiB", "whatever a small compressed file becomes up to here, it fills no memory: twenty times as much once it is parsed",
        UNCALIBRATED,
    ),
    "expansion_ratio": Bound(
        200.0, "expanded bytes a compressed byte", "logs of agents and trainers pack 3- to 60-fold; bombs of gzip reach 1,032", UNCALIBRATED
    ),
    "expanded_total": Bound(
        536_870_912.0, "bytes, 512 MiB", "of a compressed file that is held in memory as a whole; larger ones are to be unpacked first", UNCALIBRATED
    ),
    "table_cells": Bound(10_000_000.0, "cells", "of a table of metrics, 100 columns over 100,000 steps; some 1 GB as Python's numbers", UNCALIBRATED),
    "pattern_seconds": Bound(2.0, "seconds of CPU", "a pattern over one text; linear ones take microseconds, and backtracking never ends", UNCALIBRATED),
    "memory_ratio": Bound(1.3, "ratio", "30 % more than the median rank", UNCALIBRATED),
}  # fmt: skip
