"""`trimtab export`, a recorded run into a tracker, and `trimtab alert`, which watches a run folder."""

from __future__ import annotations

import math
import os
import time
from contextlib import redirect_stdout, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from trimtab.catalog import bound
from trimtab.cli.options import print_all
from trimtab.errors import SinkError
from trimtab.report.control_characters import escape_controls

if TYPE_CHECKING:
    from trimtab.alerts import AlertSink


sinks_app = typer.Typer(help="Trackers and alerts.")
ONCE_HELP = f"Read once and leave, as for cron; try to deliver for {bound('alert_once'):g} s at most."


@sinks_app.command()
def export(
    run: Annotated[Path, typer.Argument(help="Run folder.", show_default=False)],
    to: Annotated[
        str, typer.Option("--to", help="wandb, tensorboard, mlflow or trackio.", show_default=False)
    ],
    output: Annotated[
        str,
        typer.Option(
            "-o", "--output", help="Folder to write to; for mlflow a file of SQLite.", show_default=False
        ),
    ],
    only: Annotated[
        list[str] | None,
        typer.Option(help="Names to export, as 'trimtab/post_tool/*'; repeatable, all otherwise."),
    ] = None,
) -> None:
    """Write a recorded run to a tracker's own files; run again, it goes on behind what it wrote
    (docs/how-to/sinks.md)."""
    import sys

    from trimtab.cli.export_target import file_sink, target_path
    from trimtab.report.run_view import load_view
    from trimtab.sinks.run_export import export_run, require_names
    from trimtab.sinks.tracker_libraries import TRACKERS

    if to not in TRACKERS:
        raise SinkError(f"--to {to} is unknown; one of {', '.join(TRACKERS)}")
    target = target_path(to, output)
    view = load_view(run)
    require_names(view, only or ())
    sink = file_sink(to, target)
    with redirect_stdout(sys.stderr):  # trackers greet
        done = export_run(view, sink, target, only or ("*",))
    refused = (
        f"; {done.num_refused} infinite numbers left out: {to} cannot hold them" if done.num_refused else ""
    )
    span = f"steps {done.first_step} to {done.last_step}" if done.num_steps else "nothing new"
    print_all(escape_controls(f"wrote {target}: {span}, {done.num_points} numbers{refused}"))


@sinks_app.command()
def alert(
    run: Annotated[Path, typer.Argument(help="Run folder.", show_default=False)],
    command: Annotated[
        list[str] | None,
        typer.Argument(
            help="Behind --: command to start, with the alert as JSON on its input.", show_default=False
        ),
    ] = None,
    slack_env: Annotated[
        str | None, typer.Option(metavar="NAME", help="Environment variable with the URL of a Slack webhook.")
    ] = None,
    webhook_env: Annotated[
        str | None, typer.Option(metavar="NAME", help="Environment variable with a URL that takes JSON.")
    ] = None,
    min_severity: Annotated[str, typer.Option(help="warning or critical.")] = "warning",
    silence: Annotated[float, typer.Option(help="Seconds without a step that are silence.", min=1.0)] = bound(
        "alert_silence"
    ),
    interval: Annotated[float, typer.Option(help="Seconds between two readings.", min=0.1)] = 5.0,
    once: Annotated[bool, typer.Option("--once", help=ONCE_HELP)] = False,
) -> None:
    """Alert about a run's incidents, its silence and a bad end, from a process of its own
    (docs/how-to/alerts.md).

    Exit code: 0 nothing was sent, 1 alerts were sent, 2 bad input or an alert that could not be delivered.
    """
    from trimtab.alerts import RunSentry
    from trimtab.traces.core.plural import counted

    sinks = _alerts(command, slack_env, webhook_env, min_severity, once=once)
    sentry = RunSentry(run, sinks, silence)
    with suppress(KeyboardInterrupt):
        while True:
            sentry.check()
            for failure in sentry.failures:
                typer.echo(f"trimtab: {escape_controls(failure)}", err=True)
            if once or sentry.is_over:
                break
            time.sleep(interval)
    sentry.close()
    state = "ended" if sentry.is_over else "goes on"
    print_all(f"{counted(sentry.num_sent, 'alert')} sent; the run {state}")
    raise typer.Exit(2 if sentry.failures else 1 if sentry.num_sent else 0)


def _alerts(
    command: list[str] | None,
    slack_env: str | None,
    webhook_env: str | None,
    min_severity: str,
    *,
    once: bool,
) -> list[AlertSink]:
    from trimtab.alerts import AlertSink, CommandTarget, DeliveryOptions, Webhook
    from trimtab.alerts.targets import AlertTarget

    num_targets = sum(bool(one) for one in (slack_env, webhook_env, command))
    max_call_s = bound("alert_once") / max(1, num_targets) if once else math.inf
    options = DeliveryOptions(min_severity=min_severity, max_call_s=max_call_s)  # type: ignore[arg-type]
    targets: list[AlertTarget] = []
    for name, form in ((slack_env, "slack"), (webhook_env, "json")):
        if name is not None:
            if not os.environ.get(name):
                raise SinkError(f"the environment variable {name} is not set; it holds the webhook's URL")
            targets.append(Webhook(os.environ[name], format=form))  # type: ignore[arg-type]
    if command:
        targets.append(CommandTarget(command))
    if not targets:
        raise SinkError("nobody to alert: give --slack-env, --webhook-env, or a command behind --")
    return [AlertSink(target, options) for target in targets]
