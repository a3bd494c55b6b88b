"""`trimtab postmortem` and `trimtab resume-check`: what ended a run, and whether it can go on."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from trimtab.cli.options import show_verdict

ending_app = typer.Typer()


@ending_app.command("postmortem")
def postmortem(
    run: Annotated[Path, typer.Argument(help="Run folder.", show_default=False)],
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object instead of text.")] = False,
) -> None:
    """Show how a run ended and what to try first, and write postmortem.json where the process that died could
    not (docs/how-to/post-mortem.md).

    Exit code: 0 it did not end badly, 1 it ended badly, 2 bad input, still running or not known.
    """
    from trimtab.report.control_characters import escape_controls
    from trimtab.report.post_mortem import POST_MORTEM, keep_post_mortem
    from trimtab.report.post_mortem.post_mortem_text import post_mortem_lines
    from trimtab.report.run_ending import ending_of
    from trimtab.report.run_view import load_view

    view = load_view(run)
    record: dict[str, Any] | None
    try:
        record, written = keep_post_mortem(view, "reader")
    except OSError as error:  # a folder that may only be read is shown all the same
        from trimtab.report.post_mortem import post_mortem

        record, written = post_mortem(view), False
        print(f"trimtab: {run / POST_MORTEM} cannot be written: {error.strerror or error}", file=sys.stderr)
    if written:
        print(f"wrote {run / POST_MORTEM}", file=sys.stderr)
    if record is not None:
        show_verdict({**record, "exit_code": 1}, post_mortem_lines, as_json)
    ending = ending_of(view.reader, view.steps)
    over = ending["how"] in ("finished", "exited")
    text = f"{run}: no post-mortem: {ending['text'] or 'it has no rank'}"
    shown = {"run": str(run), "ending": ending, "post_mortem": None, "exit_code": 0 if over else 2}
    show_verdict(shown, lambda _: [escape_controls(text)], as_json)


@ending_app.command("resume-check")
def resume(
    run: Annotated[Path, typer.Argument(help="Run folder.", show_default=False)],
    checkpoint: Annotated[
        Path, typer.Argument(help="Folder of the checkpoint to resume from.", show_default=False)
    ],
    config: Annotated[
        Path | None,
        typer.Option(help="Settings of the resume, YAML or JSON; compared with those at the save."),
    ] = None,
    sampler_step: Annotated[
        int | None, typer.Option(help="Step whose weights the inference engine has now.", min=0)
    ] = None,
    sampler_hash: Annotated[
        str, typer.Option(help="SHA-256 of the weights that the engine has loaded.", metavar="HEX")
    ] = "",
    accept: Annotated[
        list[str] | None,
        typer.Option(
            help="Checks whose difference is wanted, as versions,configuration; repeatable.", metavar="CHECKS"
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object instead of text.")] = False,
) -> None:
    """Compare a checkpoint with its run before a resume: step, data, configuration, versions, weights, files,
    sampler (docs/how-to/resume-check.md).

    Exit code: 0 go, 1 no-go, 2 bad input or undecided.
    """
    from trimtab.preflight.resume import ResumeOptions, resume_check
    from trimtab.preflight.resume.resume_verdict import resume_lines

    names = tuple(name.strip() for text in accept or () for name in text.split(",") if name.strip())
    result = resume_check(run, checkpoint, ResumeOptions(config, sampler_step, sampler_hash, names))
    show_verdict(result, resume_lines, as_json)
