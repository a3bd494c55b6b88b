"""`trimtab stress`: what breaks an environment, tried before a run is launched."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from trimtab.cli.options import show_verdict
from trimtab.errors import RewardError

stress_app = typer.Typer(
    help="Try to break tools, rewards and environments before a launch.", no_args_is_help=True
)


@stress_app.callback()
def _group() -> None:
    """Keep each target a command of its own."""


@stress_app.command("reward")
def stress_reward(
    target: Annotated[
        str, typer.Argument(help="module:function, or path/file.py:function.", show_default=False)
    ],
    dataset: Annotated[
        Path | None,
        typer.Option(help="Tasks: JSONL, JSON, CSV or Parquet; a prompt and an answer a row. Else ten sums."),
    ] = None,
    against: Annotated[
        str | None, typer.Option(help="Another revision of the reward to compare with.", metavar="TARGET")
    ] = None,
    completions: Annotated[
        Path | None,
        typer.Option(help="Logged completions to score with both revisions: prompt, completion, answer."),
    ] = None,
    template: Annotated[
        str, typer.Option(help="The format your reward reads, as 'My answer: {answer}'.")
    ] = "",
    timeout: Annotated[float, typer.Option(help="Seconds that one call may take.", min=0.1)] = 20.0,
    html: Annotated[Path | None, typer.Option(help="Also write an offline page.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object instead of text.")] = False,
) -> None:
    """Try to earn a reward without solving the task (docs/how-to/stress-rewards.md).

    Exit code: 0 nothing above information, 1 an exploit or a defect, 2 bad input.
    """
    from trimtab.report.html.offline_page import require_page_path
    from trimtab.report.rewards.revision_verdict import RewardRequest, reward_verdict
    from trimtab.report.rewards.reward_page import render_stress_page, write_reward_page
    from trimtab.report.rewards.stress_verdict import stress_lines
    from trimtab.rewards.probe_run import ProbeOptions

    if html is not None:
        require_page_path(html, RewardError)
    say = None if as_json or not sys.stderr.isatty() else _say
    options = ProbeOptions(timeout_s=timeout, template=template)
    result = reward_verdict(RewardRequest(target, dataset, against, completions, options), say)
    if html is not None:
        write_reward_page(render_stress_page(result), html)
        print(f"wrote {html}", file=sys.stderr)
    show_verdict(result, stress_lines, as_json)


@stress_app.command("env")
def stress_env(
    spec: Annotated[
        Path, typer.Argument(help="YAML file that describes the environment.", show_default=False)
    ],
    html: Annotated[Path | None, typer.Option(help="Also write an offline page.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object instead of text.")] = False,
) -> None:
    """Try to be paid by editing files, processes and history; in bubblewrap (docs/how-to/stress-env.md).

    Exit code: 0 no exploit paid, 1 an exploit paid, 2 bad input or no bubblewrap.
    """
    from trimtab.report.html.offline_page import require_page_path
    from trimtab.report.launch.environment_page import write_environment
    from trimtab.report.rewards.stress_verdict import environment_lines
    from trimtab.rewards.environment.environment_stress import load_environment, stress_environment

    say = None if as_json or not sys.stderr.isatty() else _say
    if html is not None:
        require_page_path(html, RewardError)
    result = stress_environment(load_environment(spec), say)
    if html is not None:
        write_environment(result, html)
        print(f"wrote {html}", file=sys.stderr)
    show_verdict(result, environment_lines, as_json)


def _say(stage: str) -> None:
    print(f"trimtab: {stage} ...", file=sys.stderr)
