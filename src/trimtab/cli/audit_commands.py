"""`trimtab audit`: why something that looks well looks well."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from trimtab.cli.options import show_verdict
from trimtab.errors import MetricLogError, TraceError

audit_app = typer.Typer(help="Ask why a reward rises.", no_args_is_help=True)


@audit_app.callback()
def _group() -> None:
    """Keep `rewards` a command of its own while it is the only one."""


@audit_app.command("rewards")
def audit_rewards(
    target: Annotated[
        Path, typer.Argument(help="Run folder, any trainer's metrics log, or agent logs.", show_default=False)
    ],
    reward: Annotated[
        str, typer.Option(help="Key of the reward that is trained on; found by the log's keys otherwise.")
    ] = "",
    held_out: Annotated[
        str, typer.Option(help="Key of what confirms it: held-out tasks, tests. It must not be trained on.")
    ] = "",
    solved_at: Annotated[
        float | None, typer.Option(help="Agent logs: an episode with this reward or more scores high.")
    ] = None,
    html: Annotated[Path | None, typer.Option(help="Also write an offline page.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object instead of text.")] = False,
) -> None:
    """Explain a rise of the reward: learning, a jump, suspected hacking (docs/how-to/audit-rewards.md).

    Exit code: 0 learning or a jump, 1 suspected hacking, 2 bad input or undecided.
    """
    from trimtab.report.rewards.audit_report import audit_lines, render_audit_page
    from trimtab.report.rewards.reward_page import write_reward_page

    result = _audit(target, reward, held_out, solved_at)
    if html is not None:
        write_reward_page(render_audit_page(result), html)
        print(f"wrote {html}", file=sys.stderr)
    show_verdict(result, audit_lines, as_json)


def _audit(target: Path, reward: str, held_out: str, solved_at: float | None) -> dict[str, Any]:
    """The audit of whatever `target` is."""
    from trimtab.metric_logs.read_log import read_metric_log
    from trimtab.report.rewards.audit_report import series_of_run
    from trimtab.rewards.audit.series_audit import audit_series, series_of_log
    from trimtab.rewards.audit.trace_audit import audit_traces
    from trimtab.runs.run_files import holds_rows
    from trimtab.traces.read import read_episodes

    if (target / "run.json").is_file() or holds_rows(target):
        return audit_series(series_of_run(target, reward, held_out))
    mapping = {"reward": reward, "held_out_reward": held_out}
    try:
        log = read_metric_log(target, mapping={ours: key for ours, key in mapping.items() if key})
    except MetricLogError as no_log:
        try:
            episodes, _ = read_episodes([target])
        except TraceError:
            raise no_log from None
        return audit_traces(episodes, str(target), held_out, solved_at)
    return audit_series(series_of_log(log))
