"""Rules on text shape, tools and the machine."""

from __future__ import annotations

from trimtab.catalog import bound
from trimtab.detect.detectors.drawdown import Drawdown
from trimtab.detect.detectors.prediction_limit import PredictionLimit
from trimtab.detect.rules.rule import (
    LONG,
    MEMORY,
    Rule,
    Suppression,
    beyond,
    change,
    excursion,
    share_change,
)

_LEARNS = Suppression("aggregate/reward", 1)
_SLOWLY = Suppression("aggregate/reward", 1, slow=64)
_DAPO = "DAPO, arXiv 2503.14476"

ENVIRONMENT_RULES: tuple[Rule, ...] = (
    Rule(
        "length_growth", "aggregate/length", "all", "aggregate", "length", "identity", change(1, lenient=True, min_frac=bound("length_frac")),
        "warning", "responses grow longer than their own trend", "Length that grows without reward is hacking or rambling.",
        "Read the longest outputs; penalise length, or normalise the loss by a constant.",
        "Growth while the reward rises is often reasoning, and only information.", "Dr. GRPO, arXiv 2503.20783", excuses=(_LEARNS,),
        also=("hacking",),
    ),
    Rule(
        "length_doubled", "aggregate/length", "all", "aggregate", "length", "log",
        lambda arl: PredictionLimit(arl=arl, confirm=3, min_effect=bound("length_growth")), "info",
        "responses are twice as long as in the first ten steps, and more",
        "Slow growth has no step at which it breaks a trend. It is reasoning, or padding that is paid for.",
        "Read the longest rewarded outputs; see whether a held-out score grows as well.",
        "A limit or a task that changed on purpose.", "Dr. GRPO, arXiv 2503.20783", weight=0.5, also=("hacking",),
    ),
    Rule(
        "length_collapse", "aggregate/length", "all", "aggregate", "length", "identity", change(-1, min_frac=bound("length_frac")), "warning",
        "responses grow shorter", "The policy gives up steps: tool calls and reasoning go first.",
        "Read the shortest outputs; check for a reward that pays for stopping early.",
        "A fall while the reward rises is often efficiency, and only information.", "default, not calibrated", excuses=(_LEARNS,),
    ),
    Rule(
        "truncation", "aggregate/truncated_frac", "all", "aggregate", "truncation", "log", share_change(1), "warning",
        "more responses are cut at the limit", "A cut response gets a reward it did not earn, or loses one it would have.",
        "Raise the limit, shape overlong rewards (DAPO) or mask cut responses.", "A limit that was lowered.", _DAPO, floor=bound("share_floor"),
    ),
    Rule(
        "truncation_high", "aggregate/truncated_frac", "all", "aggregate", "truncation", "identity",
        beyond("truncated_frac", 1, confirm=LONG), "warning", "many responses are cut at the limit",
        "A cut response gets a reward it did not earn, or loses one it would have.",
        "Raise the limit, shape overlong rewards (DAPO) or mask cut responses.", "Runs that train under a budget on purpose.", _DAPO,
        weight=0.5,
    ),
    Rule(
        "repetition", "aggregate/repetition_frac", "all", "aggregate", "repetition", "log", share_change(1), "warning",
        "outputs repeat themselves more", "Loops of text are how many collapses look from outside.",
        "Read the outputs; check sampling temperature and the length reward.", "Tasks that ask for repetition.", "rlprobe repetition_spiral", floor=bound("share_floor"),
    ),
    Rule(
        "tool_failures", "aggregate/tool_failure_frac", "all", "aggregate", "tools", "log", share_change(1), "critical",
        "more tool calls fail", "A failing tool teaches the policy that the right call is wrong.",
        "Look at the error kinds a tool; mask faulted episodes, group baseline included; test the tools under load.",
        "A tool whose failures are part of the task.", "verl-omni#366, NeMo Gym#3351", floor=bound("share_floor"),
    ),
    Rule(
        "tool_failures_high", "aggregate/tool_failure_frac", "all", "aggregate", "tools", "identity",
        beyond("tool_failure_frac", 1, confirm=LONG), "warning", "a large share of tool calls fails",
        "A failing tool teaches the policy that the right call is wrong.",
        "Look at the error kinds a tool; test the tools under load.", "The first steps of a policy that does not know the tools yet.",
        "post-training-toolkit (its bound, 0.2)", weight=0.5,
    ),
    Rule(
        "tool_failures_by_tool", "tools/failure_frac", "tool/*", "aggregate", "tools", "identity",
        lambda arl: Drawdown(arl=min(arl, bound("arl_evaluations")), sign=1, min_effect=bound("tool_failure_change")), "warning", "one tool fails more than it did", "One dying tool hides in the average of all.",
        "Look at its error kinds and its latency.", "A tool called a few times a window: windows of fewer than eight calls are left out.", "verl#2188", weight=2.0,
        least=int(bound("tool_window_calls")),
    ),
    Rule(
        "tool_latency", "aggregate/tool_latency_s", "all", "aggregate", "tools", "log", change(1), "warning",
        "tool calls take longer", "Slow tools time out under peak load, and time-outs look like wrong answers.",
        "Look at p95 a tool; test the tools at the concurrency of training.", "A tool that was replaced.", "verl#2188",
    ),
    Rule(
        "tool_use_dies", "aggregate/tool_calls", "all", "aggregate", "tools", "identity", change(-1, lenient=True, min_frac=bound("tool_calls_frac")),
        "warning", "the policy calls tools less and less", "Tool use that dies out does not come back by itself.",
        "Check failures and latency first; reward a needed call; check that answers are not guessable.",
        "A fall while the reward rises is often efficiency, and only information.", "agent-lightning#489, gem#39", excuses=(_SLOWLY,),
    ),
    Rule(
        "tool_use_gone", "aggregate/tool_calls", "all", "aggregate", "tools", "identity", excursion(-1, bound("quarter"), memory=MEMORY), "critical",
        "tool calls fell to less than a quarter", "The policy answers without looking.",
        "Check failures and latency first; go back to before `since`.", "Tasks that stopped needing tools.", "agent-lightning#489",
    ),
    Rule(
        "no_call_growth", "aggregate/no_call_frac", "all", "aggregate", "tools", "log", share_change(1), "warning",
        "more responses call no tool at all", "Tool use that dies out does not come back by itself.",
        "Check failures and latency first; reward a needed call.",
        "A rise while the reward rises is often efficiency, and only information.", "NeMo Gym PR#1304", excuses=(_SLOWLY,), floor=bound("share_floor"),
    ),
    Rule(
        "tool_abandoned", "tools/steps_since_call", "tool/*", "aggregate", "tools", "identity",
        beyond("abandoned_steps", 1, confirm=1), "warning", "a tool has not been used for long",
        "What is never used is not trained on, and what it would have found is not known.",
        "Check that tasks need it, that it works, and that the policy knows of it.", "Tools that no task needs any more.",
        "default, not calibrated", weight=0.5,
    ),
    Rule(
        "file_abandoned", "tools/steps_since_call", "file/*", "aggregate", "tools", "identity",
        beyond("abandoned_steps", 1, confirm=1), "warning", "a required file has not been named in a call for long",
        "What is never read is not learnt from, and what it would have told is not known.",
        "Check that tasks need it, that it is there, and that the policy knows of it.", "Tasks that stopped needing the file.",
        "default, not calibrated", weight=0.5,
    ),
    Rule(
        "void_turns", "aggregate/void_turn_frac", "all", "aggregate", "tools", "identity", change(1, min_effect=bound("void_turn_change")), "warning",
        "more turns hold neither a complete call nor an answer", "Void turns are where low-probability tokens compound.",
        "Drop such trajectories (SimpleTIR).", "A turn limit that was lowered.", "SimpleTIR, arXiv 2509.02479",
    ),
    Rule(
        "retokenisation", "retokenise/token_frac", "all", "tail", "mismatch", "identity", change(1, min_effect=bound("token_share_change")), "warning",
        "more tokens change when the text is encoded again", "Log-probabilities of other tokens than the sampled ones are noise.",
        "Train on the sampled ids; do not decode and encode between turns.", "None known.", "TRL#5224, verl#3960",
    ),
    Rule(
        "throughput_rot", "aggregate/tokens_per_s", "all", "aggregate", "throughput", "log", change(-1, min_effect=bound("throughput_change")), "warning",
        "throughput falls", "A leak, a slow rank or a filling disk.", "Compare ranks; look at memory and at step time's parts.",
        "Longer responses.", "rlprobe throughput_rot",
    ),
    Rule(
        "step_time_growth", "aggregate/step_s", "all", "aggregate", "throughput", "log", change(1, lenient=True, min_effect=bound("throughput_change")),
        "warning", "steps take longer", "A leak, a slow rank, slow tools or longer responses.",
        "Compare with length, tool latency and ranks.", "Longer responses.", "rlprobe throughput_rot",
        excuses=(Suppression("aggregate/length", 1),),
    ),
    Rule(
        "straggler", "aggregate/slowest_rank_ratio", "all", "aggregate", "throughput", "identity",
        beyond("slowest_rank_ratio", 1), "warning", "one rank is far slower than the median", "All wait for the slowest.",
        "Look at that rank's tools, memory and network.", "Fewer than three ranks.", "default, not calibrated", weight=0.5,
    ),
    Rule(
        "memory_imbalance", "aggregate/memory_ratio", "all", "aggregate", "throughput", "identity",
        beyond("memory_ratio", 1), "warning", "one rank holds far more memory than the median",
        "It will be the one that runs out.", "Balance sequences by length over ranks.", "Fewer than three ranks.", "default, not calibrated",
        weight=0.5,
    ),
)  # fmt: skip
