"""Rules of agent logs, and the text of their messages. A fraction fires when its whole interval lies above a
bound."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from trimtab.catalog import TRACE_BOUNDS, bound
from trimtab.detect.verdict import Verdict
from trimtab.measure.traces.builder import Measured
from trimtab.traces.core.plural import counted
from trimtab.types import Severity


@dataclass(frozen=True)
class TraceRule:
    """`test` "interval": the lower end of the 95 % interval; "value": the value; "below": the value, which
    fires below the bound; "zero": it fires at zero. `bounds`: names in the catalog for a warning and, if
    there are two, for critical. `min_count`: name of the bound on n below which nothing is judged."""

    name: str
    key: str
    test: Literal["interval", "value", "below", "zero"]
    bounds: tuple[str, ...]
    min_count: str
    severity: Severity
    what: str
    why: str
    advice: str
    reference: str = "default, not calibrated"


@dataclass(frozen=True)
class Finding:
    """A rule that fired, with the reading and the examples it rests on."""

    rule: TraceRule
    severity: Severity
    bound: float
    measured: Measured


_EPISODES, _CALLS = "trace_episodes", "trace_calls"
_CALL_BOUNDS = ("trace_malformed_call", "trace_malformed_call_critical")

TRACE_RULES: tuple[TraceRule, ...] = (
    TraceRule(
        "tool_failing", "tools/failure_frac", "interval", ("trace_tool_failure", "trace_tool_failure_critical"), _CALLS, "warning",
        "many calls of this tool fail",
        "The policy learns to live without the tool, or is scored for what the tool did.",
        "Read the kinds of error. Where the tool is at fault, fix it or leave its episodes out of training; where the call was wrong, "
        "put what was missing (units, totals, ids) into the tool's description and its error text.",
        "verl#2188",
    ),
    TraceRule(
        "calls_failing", "traces/failed_call_frac", "interval", ("trace_tool_failure", "trace_tool_failure_critical"), _CALLS, "warning",
        "many calls fail, all tools together", "No tool alone has calls enough to be judged, or none fails enough; the policy meets the sum.",
        "Read the kinds of error of the tools below: one cause may be behind them all (a sandbox, a key, a parser).",
        "verl#2188",
    ),
    TraceRule(
        "tool_slow", "tools/latency_p95_s", "interval", ("trace_latency_p95",), _CALLS, "warning",
        "this tool is slow at its 95th percentile", "A synchronous rollout waits for its slowest episode.",
        "Cache, raise the tool's concurrency, or set a time-out that the policy can see.",
    ),
    TraceRule(
        "tool_neglected", "traces/neglected", "value", ("zero",), _EPISODES, "critical",
        "a required tool or file is never used, rarely or no longer", "A path the policy leaves is one it stops learning.",
        "Check that the tool is in the prompt and works; then that the reward does not punish its use.",
        "agent-lightning#489",
    ),
    TraceRule(
        "tool_faults", "traces/tool_fault_frac", "interval", ("trace_tool_fault", "trace_tool_fault_critical"), _EPISODES, "warning",
        "episodes meet faults that are the tools' (time-outs, connections, HTTP 5xx and 429)",
        "Such an episode is scored for something the policy did not do, and so are the others of its group, through the baseline.",
        "Retry in the tool, or leave those episodes out of the loss and their groups' baselines.",
    ),
    TraceRule(
        "unknown_tools", "traces/unknown_tool_frac", "interval", _CALL_BOUNDS, _CALLS, "warning",
        "tools are called that do not exist", "Each is a turn lost, and a habit that is reinforced when the episode succeeds.",
        "Compare the names in the prompt with those the environment knows; answer such a call with the list of names.",
    ),
    TraceRule(
        "bad_arguments", "traces/bad_arguments_frac", "interval", _CALL_BOUNDS, _CALLS, "warning",
        "arguments of calls cannot be parsed", "The parser and the chat template disagree, or answers are cut at the length limit.",
        "Look at the texts: cut ones need a longer limit, quoted ones another parser; constrain decoding if neither helps.",
    ),
    TraceRule(
        "schema_errors", "traces/schema_error_frac", "interval", _CALL_BOUNDS, _CALLS, "warning",
        "arguments of calls do not fit the tool's schema", "The tool guesses or fails, and the log blames the tool.",
        "Name required fields and types in the tool's description; answer with the field that is wrong.",
    ),
    TraceRule(
        "unanswered_calls", "traces/unanswered_frac", "interval", _CALL_BOUNDS, _CALLS, "warning",
        "calls have no result in the log", "The tool hangs, the episode was killed, or the log loses events.",
        "Follow one of the calls below; give tools a time-out that writes a result.",
    ),
    TraceRule(
        "loops", "traces/loop_frac", "interval", ("trace_loop", "trace_loop_critical"), _EPISODES, "warning",
        "episodes go round in circles", "The same calls with the same answers: turns and tokens without information.",
        "Tell the policy that the answer has not changed; end the episode after three rounds; look at what it cannot find out.",
    ),
    TraceRule(
        "repeated_calls", "traces/repeat_frac", "interval", ("trace_repeat",), _CALLS, "warning",
        "calls repeat an earlier one to the letter and get the same answer", "The answer was cut, lost from the context, or not understood.",
        "Check that results reach the model whole; cache them and say so.",
    ),
    TraceRule(
        "void_turns", "traces/void_turn_frac", "interval", ("trace_void",), _EPISODES, "warning",
        "assistant turns hold neither text nor call", "SimpleTIR traces collapses of multi-turn training to such turns.",
        "Leave their episodes out of the policy loss; look for stop tokens after results.",
        "SimpleTIR, arXiv 2509.02479",
    ),
    TraceRule(
        "empty_answers", "traces/empty_answer_frac", "interval", ("trace_empty",), _EPISODES, "warning",
        "episodes end in an empty answer", "There is nothing to score; a reward given there rewards silence.",
        "Look for a stop token straight after a result, and for reasoning that the parser takes for all there is.",
    ),
    TraceRule(
        "refusals", "traces/refusal_frac", "interval", ("trace_refusal",), _EPISODES, "warning",
        "the agent refuses (by its first words; a rule of thumb)", "On tasks that should be done, a refusal is a failure that costs nothing.",
        "Read the episodes below; if they are refusals, look for prompts that ask for one, and for a reward that does not fall for it.",
    ),
    TraceRule(
        "language_switches", "traces/switch_frac", "interval", ("trace_switch",), _EPISODES, "warning",
        "the agent brings in a script that nobody used (a rule of thumb)", "Mixed languages are an early sign of a policy that leaves its reference.",
        "Read the episodes below; reward the language of the task, or raise the KL to the reference.",
        "DeepSeek-R1, arXiv 2501.12948",
    ),
    TraceRule(
        "failure_burst", "traces/burst_excess", "value", ("trace_burst",), _EPISODES, "warning",
        "this tool's failures come in a burst", "An outage, or a policy that the log does not name: the rewards of that time measure it.",
        "Look at the tool's own log for that time; leave its episodes out if the tool was down.",
        "Naus 1965",
    ),
    TraceRule(
        "failure_under_load", "traces/load_excess", "value", ("trace_burst",), _EPISODES, "warning",
        "this tool fails more when more episodes run at once", "The environment cannot take the load; the policy is scored for it.",
        "Limit the tool's concurrency, or give it more capacity; retry with a delay inside the tool.",
    ),
    TraceRule(
        "truncation", "traces/truncated_frac", "interval", ("trace_truncated", "trace_truncated_critical"), _EPISODES, "warning",
        "a limit ends many episodes", "They are scored unfinished: the reward then measures the limit.",
        "Raise the limit, or mask them; look first whether they loop.",
    ),
    TraceRule(
        "constant_reward", "traces/reward_std", "zero", (), _EPISODES, "critical",
        "every episode has the same reward", "There is nothing to learn from, and nothing to compare.",
        "Check that the reward function is called with the right answer.",
    ),
    TraceRule(
        "hardly_solved", "traces/solved_frac", "below", ("trace_solved",), _EPISODES, "warning",
        "hardly any episode solves its task", "Most groups of attempts then hold no success at all, and a policy gradient learns nothing from them.",
        "Read a few episodes from start to end: are tools, parser and checker sound? Only then look for easier tasks.",
        "DAPO, arXiv 2503.14476",
    ),
    TraceRule(
        "groups_without_gradient", "aggregate/zero_std_frac", "interval", ("trace_zero_groups", "trace_zero_groups_critical"), "trace_groups",
        "warning", "all attempts of a group (the log's, else a task's in one training step, else a prompt's) have the same reward, for most groups",
        "Group-relative advantages are zero there.",
        "Drop tasks that are always or never solved, or draw more attempts at each.", "DAPO, arXiv 2503.14476",
    ),
    TraceRule(
        "reward_against_success", "traces/disagree_frac", "interval", ("trace_disagree",), _EPISODES, "warning",
        "reward and success disagree", "One of the two is not measuring the task; the policy follows the reward.",
        "Read the episodes below: a reward without success is a loophole, a success without reward a broken check.",
    ),
    TraceRule(
        "nan_rewards", "traces/nan_rewards", "value", ("zero",), _EPISODES, "critical",
        "rewards are NaN or infinite", "One poisons the mean and deviation of its group, and with them the gradient.",
        "Find the reward that divides by zero or overflows; mask its episodes until then.",
    ),
    TraceRule(
        "malformed_lines", "traces/malformed_frac", "interval", ("trace_malformed_line", "trace_malformed_line_critical"), _EPISODES,
        "warning", "lines of the log cannot be read", "What is missing is seldom a fair sample: long or crashed episodes go first.",
        "Look at the lines below; several processes may write one file.",
    ),
    TraceRule(
        "cut_files", "traces/cut_files", "value", ("zero",), "trace_files", "warning",
        "a file is cut off or damaged, and its end was not read", "Nobody knows how much is missing; all numbers are of what comes before.",
        "Copy the file again, or wait until its writer has closed it; `gzip -t` and `zstd -t` test it.",
    ),
)  # fmt: skip


def trace_findings(measured: Iterable[Measured]) -> list[Finding]:
    """The rules that fire, critical ones first, then in the order of the rules; of one rule the worst first.

    All calls together are a finding of their own only where no tool alone is one as grave: it would say the
    same again."""
    by_key: dict[str, list[Measured]] = {}
    for one in measured:
        by_key.setdefault(one.reading.key, []).append(one)
    findings = [
        finding
        for rule in TRACE_RULES
        for one in sorted(by_key.get(rule.key, []), key=lambda m: -m.reading.value)
        if (finding := judge_traces(rule, one)) is not None
    ]
    alone = {f.severity for f in findings if f.rule.name == "tool_failing"}
    findings = [
        f for f in findings if not (f.rule.name == "calls_failing" and alone & {f.severity, "critical"})
    ]
    return sorted(findings, key=lambda f: f.severity != "critical")


def judge_traces(rule: TraceRule, measured: Measured) -> Finding | None:
    """Does the rule fire? Not on fewer than its minimum count, nor on what was not observed."""
    reading = measured.reading
    if not math.isfinite(reading.value) or reading.n_tokens < bound(rule.min_count):
        return None
    if rule.test == "zero":
        return Finding(rule, rule.severity, 0.0, measured) if reading.value == 0 else None
    value = reading.low if rule.test == "interval" else reading.value
    if rule.test == "below":
        limit = bound(rule.bounds[0])
        return Finding(rule, rule.severity, limit, measured) if reading.value < limit else None
    limits = [0.0 if name == "zero" else bound(name) for name in rule.bounds]
    if not value > limits[0]:
        return None
    worse = len(limits) > 1 and value > limits[1]
    return Finding(rule, "critical" if worse else rule.severity, limits[1] if worse else limits[0], measured)


def trace_verdict(
    findings: list[Finding],
    measured: list[Measured],
    num_episodes: int,
    num_without_turns: int = 0,
    unread: tuple[int, int] = (0, 0),
) -> Verdict:
    """One word and why. Healthy needs enough episodes, and turns and calls or rewards to judge.

    `num_without_turns`: episodes of which no message was read; `unread`: of how many messages those that
    could not be read.
    """
    serious = [finding for finding in findings if finding.severity != "info"]
    if serious:
        critical = sum(finding.severity == "critical" for finding in serious)
        names = list(dict.fromkeys(_named(finding) for finding in serious))
        more = f" and {len(names) - 4} more" if len(names) > 4 else ""
        count = f"{len(serious)} alarm{'s' * (len(serious) > 1)}" + (
            f", {critical} critical" if critical else ""
        )
        return Verdict("alarms", f"{count}: {', '.join(names[:4])}{more}")
    if num_episodes < bound(_EPISODES):
        return Verdict(
            "not judged yet",
            f"{counted(num_episodes, 'episode')}; {bound(_EPISODES):.0f} are needed to judge anything",
        )
    if num_without_turns > bound("trace_no_turns") * num_episodes:
        nothing = f"no message was read of {num_without_turns:,} of {counted(num_episodes, 'episode')}"
        return Verdict("blind", f"{nothing}; the notes say what was left out")
    num_unread, num_messages = unread
    if num_unread > bound("trace_unread") * num_messages:
        some = f"{num_unread:,} of {counted(num_messages, 'message')} could not be read"
        return Verdict("blind", f"{some}; the notes say why")
    seen = {m.reading.key for m in measured if m.reading.status == "ok"}
    if not seen & {"tools/failure_frac", "traces/reward_std", "traces/solved_frac"}:
        return Verdict("blind", "the log has no tool call, no reward and no success to judge")
    judged, few = _judged(measured)
    return Verdict("healthy", f"no rule fired ({', '.join(judged)})" + (f"; {'; '.join(few)}" if few else ""))


def _judged(measured: list[Measured]) -> tuple[list[str], list[str]]:
    """Rules that had enough to be judged, and in words those that had too little, with the tools it was too
    little of."""
    judged, few = [], []
    for rule in TRACE_RULES:
        known = [m.reading for m in measured if m.reading.key == rule.key and m.reading.status == "ok"]
        min_count = bound(rule.min_count)
        enough = [reading for reading in known if reading.n_tokens >= min_count]
        short = [reading for reading in known if reading.n_tokens < min_count]
        judged += [rule.name] * bool(enough)
        if not short:
            continue
        unit = TRACE_BOUNDS[rule.min_count].unit
        names = [reading.slice.removeprefix("tool/") for reading in short if reading.slice != "all"]
        more = f" and {len(names) - 4} more" if len(names) > 4 else ""
        of = f" of {', '.join(names[:4])}{more}" if names else ""
        few.append(f"{rule.name} not judged{of}: fewer than {min_count:.0f} {unit}")
    return judged, few


def _named(finding: Finding) -> str:
    where = finding.measured.reading.slice
    return finding.rule.name if where == "all" else f"{finding.rule.name} ({where.removeprefix('tool/')})"
