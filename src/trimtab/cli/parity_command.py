"""`trimtab parity`: are scores of training and evaluation comparable?"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from trimtab.cli.options import show_verdict
from trimtab.errors import ParityError

launch_app = typer.Typer()


@launch_app.command("parity")
def parity(
    train: Annotated[
        str,
        typer.Argument(
            metavar="TRAIN",
            help="Training: settings (.yaml, .json, PATH#a.b) or agent logs.",
            show_default=False,
        ),
    ],
    evaluation: Annotated[
        str, typer.Argument(metavar="EVAL", help="Evaluation: the same.", show_default=False)
    ],
    train_traces: Annotated[
        str | None, typer.Option(help="Agent logs of training, besides its settings.", metavar="LOGS")
    ] = None,
    eval_traces: Annotated[
        str | None, typer.Option(help="Agent logs of evaluation on the same tasks.", metavar="LOGS")
    ] = None,
    margin: Annotated[
        float, typer.Option(help="Difference of mean scores that does not matter.", min=1e-9)
    ] = 0.05,
    html: Annotated[Path | None, typer.Option(help="Also write an offline page.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object instead of text.")] = False,
) -> None:
    """Which differences of two set-ups make their scores incomparable (docs/how-to/parity.md).

    Exit code: 0 comparable, 1 not comparable, 2 undecided or bad input.
    """
    from trimtab.parity.parity_verdict import parity_lines, parity_of, read_side
    from trimtab.report.control_characters import escape_controls

    if (train_traces is None) != (eval_traces is None):
        raise ParityError("--train-traces and --eval-traces go together: scores are compared task by task")
    result = parity_of(read_side(train, train_traces), read_side(evaluation, eval_traces), margin)
    if html is not None:
        from trimtab.report.launch.parity_page import write_parity

        write_parity(result, html)
        print(f"wrote {html}", file=sys.stderr)
    show_verdict(result, lambda shown: [escape_controls(line) for line in parity_lines(shown)], as_json)
