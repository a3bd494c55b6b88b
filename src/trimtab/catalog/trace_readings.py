"""Readings of agent logs, and the bounds of the rules that judge them. A share's rule fires when its interval
lies above the bound.

Per tool and per group the readings have the keys they have in a run (`tools/...`, `aggregate/zero_std_frac`).
"""

from __future__ import annotations

from trimtab.catalog.definitions import UNCALIBRATED, Bound, Definition, Direction

_ROWS: dict[str, tuple[str, str, Direction, str]] = {
    "traces/solved_frac": ("share of episodes that solved their task", "share", "down is bad", UNCALIBRATED),
    "traces/malformed_frac": ("share of lines that could not be read", "share", "up is bad", UNCALIBRATED),
    "traces/cut_files": ("files that could not be read to their end: compressed ones that are cut or damaged", "count", "up is bad", UNCALIBRATED),
    "traces/nan_rewards": ("episodes whose reward is NaN or infinite", "count", "up is bad", UNCALIBRATED),
    "traces/reward_std": ("standard deviation of the reward over episodes; 0 where all are equal within 1e-6 of their size, or of 1", "1", "down is bad", "RAGEN, arXiv 2504.20073"),
    "traces/disagree_frac": (
        "share of episodes whose reward and success disagree: not solved at the median reward of the solved or more, or "
        "solved at zero or less where all rewards lie from 0 to 1, else at the median of the failed or less", "share", "up is bad", UNCALIBRATED,
    ),
    "traces/truncated_frac": ("share of episodes that a limit ended, not the agent", "share", "up is bad", "TRL completions/clipped_ratio"),
    "traces/no_call_frac": ("share of episodes without a call, where others have one", "share", "up is bad", "NeMo Gym PR#1304"),
    "traces/loop_frac": ("share of episodes with the same block of one to four calls, answers included, three times in a row", "share", "up is bad", UNCALIBRATED),
    "traces/failed_call_frac": ("share of calls that failed, of all tools together", "share", "up is bad", UNCALIBRATED),
    "traces/repeat_frac": ("share of calls that are identical to an earlier one of the episode, arguments and result included", "share", "up is bad", UNCALIBRATED),
    "traces/void_turn_frac": ("share of assistant turns with neither text nor call", "share", "up is bad", "SimpleTIR, arXiv 2509.02479"),
    "traces/bad_arguments_frac": ("share of calls whose arguments could not be parsed", "share", "up is bad", UNCALIBRATED),
    "traces/unknown_tool_frac": ("share of calls of a tool that does not exist", "share", "up is bad", UNCALIBRATED),
    "traces/schema_error_frac": ("share of the calls held against a schema whose arguments do not fit it", "share", "up is bad", UNCALIBRATED),
    "traces/unanswered_frac": ("share of calls without a result", "share", "up is bad", UNCALIBRATED),
    "traces/tool_fault_frac": ("share of episodes with a call that failed by the tool's fault (time-out, connection, HTTP 5xx and 429)", "share", "up is bad", UNCALIBRATED),
    "traces/empty_answer_frac": ("share of episodes whose last assistant turn holds neither text nor call", "share", "up is bad", UNCALIBRATED),
    "traces/refusal_frac": ("share of episodes with an assistant turn that opens as a refusal; English phrases, a rule of thumb", "share", "up is bad", UNCALIBRATED),
    "traces/switch_frac": (
        "share of episodes with an assistant turn in a script that nobody used before in it, ten letters of it, if Latin with seven words in a row; a rule of thumb, languages "
        "of one script are not distinguished", "share", "up is bad", "DeepSeek-R1, arXiv 2501.12948, language mixing",
    ),
    "traces/symptom_frac": ("share of failed episodes with a visible symptom, a failed call or a void turn; the evidence is the first of each, which need not be the mistake", "share", "up is bad", UNCALIBRATED),
    "traces/burst_excess": (
        "share of the tool's episodes that fail in the worst window, less that of the same tasks at other times, else of the others; 0 where it is chance by permutation within tasks, or of tasks that come once, each model and policy version apart",
        "share", "up is bad", "Besag and Clifford 1991; scan statistic, Naus 1965",
    ),
    "traces/load_excess": (
        "share of the tool's episodes that fail when many run at once, less that of the others, outside the worst burst; 0 where it is chance", "share", "up is bad", "Besag and Clifford 1991",
    ),
    "traces/neglected": ("required tools that were never called, are called rarely or were abandoned (used in under a fifth of the share of episodes that used it before, by more than chance), and required files that no call names, or no longer", "count", "up is bad", "agent-lightning#489"),
}  # fmt: skip

TRACE_READINGS: dict[str, Definition] = {key: Definition(*row) for key, row in _ROWS.items()}

_BOUNDS: dict[str, tuple[float, str, str, str]] = {
    "trace_episodes": (20.0, "episodes", "fewer are not judged: the 95 % interval of a share of zero in twenty reaches to 16 %", UNCALIBRATED),
    "trace_calls": (20.0, "calls", "of a tool, or of all; fewer are not judged", UNCALIBRATED),
    "trace_groups": (10.0, "groups", "of two rewards and more; fewer are not judged", UNCALIBRATED),
    "trace_level": (0.05, "1", "family-wise level of contrasts (Bonferroni), and one less the level of their intervals", UNCALIBRATED),
    "trace_outcome_budget": (0.8, "of trace_level", "the outcome's part in a comparison of two logs, the rest is the other features': it is the question, they are many", UNCALIBRATED),
    "trace_short_frac": (0.05, "share of episodes", "that may be over before the load of an episode is read", UNCALIBRATED),
    "trace_split_min": (8.0, "episodes", "on each side of the split between few and many at once, a quarter of all where they are few", UNCALIBRATED),
    "trace_contrast_min": (10.0, "episodes", "on each side of a contrast, with and without a yes-or-no feature, and tasks", UNCALIBRATED),
    "trace_tool_failure": (0.2, "share of calls", "one call in five, of a tool or of all, as in a run (tool_failure_frac)", "post-training-toolkit 7ab9855"),
    "trace_tool_failure_critical": (0.5, "share of calls", "most calls fail", UNCALIBRATED),
    "trace_latency_p95": (10.0, "seconds", "one call in twenty makes the whole group wait so long", UNCALIBRATED),
    "trace_tool_fault": (0.05, "share of episodes", "their reward measures the tool, and so does their group's baseline", UNCALIBRATED),
    "trace_tool_fault_critical": (0.2, "share of episodes", "one episode in five", UNCALIBRATED),
    "trace_loop": (0.05, "share of episodes", "one episode in twenty", UNCALIBRATED),
    "trace_loop_critical": (0.3, "share of episodes", "three in ten", UNCALIBRATED),
    "trace_repeat": (0.1, "share of calls", "one call in ten learns nothing", UNCALIBRATED),
    "trace_malformed_call": (0.02, "share of calls", "one call in fifty: arguments, names, schema, or no result", UNCALIBRATED),
    "trace_malformed_call_critical": (0.2, "share of calls", "one call in five", UNCALIBRATED),
    "trace_void": (0.02, "share of turns", "one turn in fifty", "SimpleTIR, arXiv 2509.02479, filters such episodes"),
    "trace_truncated": (0.1, "share of episodes", "one episode in ten is scored unfinished", UNCALIBRATED),
    "trace_truncated_critical": (0.3, "share of episodes", "as in a run (truncated_frac)", UNCALIBRATED),
    "trace_solved": (0.0275, "share of episodes", "1 - 0.8^(1/8): below it four of five groups of eight attempts (TRL's default) hold no success, so that they give no gradient (zero_std_frac)", UNCALIBRATED),
    "trace_no_turns": (0.5, "share of episodes", "where no message was read of most episodes, none of their checks has seen anything", UNCALIBRATED),
    "trace_unread": (0.05, "share of messages", "as many as of malformed lines: the rest may not stand for the whole", UNCALIBRATED),
    "trace_zero_groups": (0.5, "share of groups", "half of the groups give no gradient", "DAPO, arXiv 2503.14476"),
    "trace_zero_groups_critical": (0.8, "share of groups", "as in a run (zero_std_frac)", UNCALIBRATED),
    "trace_malformed_line": (0.001, "share of lines", "more than a crash leaves behind", UNCALIBRATED),
    "trace_malformed_line_critical": (0.05, "share of lines", "one line in twenty: the rest may not stand for the whole", UNCALIBRATED),
    "trace_files": (1.0, "files", "one of which the end is missing is enough, however few its episodes", UNCALIBRATED),
    "trace_disagree": (0.01, "share of episodes", "more than labelling noise", UNCALIBRATED),
    "trace_empty": (0.02, "share of episodes", "one episode in fifty ends with nothing to score", UNCALIBRATED),
    "trace_refusal": (0.05, "share of episodes", "one episode in twenty", UNCALIBRATED),
    "trace_switch": (0.02, "share of episodes", "one episode in fifty", UNCALIBRATED),
    "trace_burst": (0.2, "share of episodes", "one in five more, inside the window or under load; less is not worth waking anybody", UNCALIBRATED),
    "trace_burst_untimed": (0.125, "share of the episodes", "the narrowest window of a log without times: its order may be that in which episodes ended, where those that hang stand together at the end of their batch", UNCALIBRATED),
    "trace_trend_range": (6.0, "log-odds, first episode to last", "from 5 to 95 %: a chance that moves by more in one log has an edge", UNCALIBRATED),
    "trace_trend_margin": (4.0, "nats", "so much better than a trend must a window explain the failures: it was the best of many", UNCALIBRATED),
    "trace_reward_rounding": (1e-6, "of the reward, or of 1", "rewards no further apart are equal: GRPO divides what is left by a deviation + 1e-4", UNCALIBRATED),
    "trace_abandoned_frac": (0.2, "of the share of episodes", "a required tool or file is used in less than so much of the share of episodes that used it before", UNCALIBRATED),
}  # fmt: skip

TRACE_BOUNDS: dict[str, Bound] = {name: Bound(*row) for name, row in _BOUNDS.items()}
