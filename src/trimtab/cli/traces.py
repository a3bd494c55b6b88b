"""`trimtab traces`: agent logs, from logs to diagnosis to training data."""

from __future__ import annotations

import typer

from trimtab.cli.trace_data import convert_logs, export_logs, show_logs
from trimtab.cli.trace_diagnosis import compare_logs, diagnose_logs

traces_app = typer.Typer(
    help="Agent logs: from logs to diagnosis to training data (docs/traces.md).", no_args_is_help=True
)
traces_app.command("diagnose")(diagnose_logs)
traces_app.command("compare")(compare_logs)
traces_app.command("export")(export_logs)
traces_app.command("convert")(convert_logs)
traces_app.command("show")(show_logs)
