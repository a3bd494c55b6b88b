"""Readings of episodes, tools, re-tokenisation, and of preference and supervised training."""

from __future__ import annotations

from trimtab.catalog.definitions import UNCALIBRATED, Definition, Direction

_ROWS: dict[str, tuple[str, str, Direction, str]] = {
    "reward_part/mean": ("mean of one part of the reward, in the slice `reward/<part>`", "1", "down is bad", UNCALIBRATED),
    "reward_part/proxy_rise": ("largest rise of a part of the reward while another was earned before but never in one of twenty", "1", "up is bad", UNCALIBRATED),
    "length/p95": ("95th percentile of gradient tokens a sequence", "count", "neither", UNCALIBRATED),
    "tools/calls": ("calls in the window: of a tool, of a declared argument's value, or of a required file", "count", "neither", "verl#2188"),
    "tools/share": ("a tool's share of all calls of the window", "share", "neither", UNCALIBRATED),
    "tools/calls_per_episode": ("calls of a tool over episodes of the window", "count", "neither", "verl#2188"),
    "tools/failures": ("failed calls of one kind of error, in the slice `tool/<name>/error=<kind>`", "count", "up is bad", "verl#2188"),
    "tools/failure_frac": ("share of a tool's calls that failed", "share", "up is bad", "TRL tools/failure_frequency, by tool"),
    "tools/latency_p50_s": ("median wall seconds of a tool's calls", "seconds", "up is bad", "verl#2188"),
    "tools/latency_p95_s": ("95th percentile of wall seconds of a tool's calls", "seconds", "up is bad", "verl#2188"),
    "tools/latency_p99_s": ("99th percentile of wall seconds of a tool's calls", "seconds", "up is bad", "verl#2188"),
    "tools/result_size_p50": ("median size of a tool's results in characters", "count", "neither", UNCALIBRATED),
    "tools/steps_since_call": ("steps since the last call; since the start of the run where there was none", "count", "up is bad", "agent-lightning#489"),
    "tools/neglected": ("declared tools and files that were never called, are called rarely or were abandoned", "count", "up is bad", "agent-lightning#489"),
    "retokenise/sequence_frac": ("share of sequences whose ids change when their text is encoded again", "share", "up is bad", "TRL#5224"),
    "retokenise/token_frac": ("share of sampled tokens from the first changed id of their sequence on", "share", "up is bad", "TRL#5224"),
    "preference/loss_over_chance": ("loss less the loss of a policy equal to its reference (log 2 for DPO): below zero is better than chance", "nats", "up is bad", "DPO, arXiv 2305.18290"),
    "preference/margin": ("chosen less rejected implicit reward", "1", "down is bad", "DPO, arXiv 2305.18290"),
    "supervised/gap": ("held-out loss less training loss: memorising, when it grows", "nats", "up is bad", UNCALIBRATED),
}  # fmt: skip

EPISODES: dict[str, Definition] = {key: Definition(*row) for key, row in _ROWS.items()}

JOINT: dict[str, Definition] = {
    f"joint/{family}": Definition(
        f"sum of the standardised members of the family {family}, up is bad, over sqrt(k)", "deviations", "up is bad", UNCALIBRATED
    )
    for family in (
        "post_tool", "support", "mismatch", "staleness", "groups", "outcome", "likelihood", "gradient", "vanishing", "tools", "tool_use", "text", "hacking",
        "template", "entropy", "looping", "value", "preference", "throughput",
    )
}  # fmt: skip
