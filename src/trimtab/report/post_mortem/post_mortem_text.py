"""A post-mortem as text, in full; its head stands over a diagnosis (`run_ending.post_mortem_head`)."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from typing import Any

from trimtab.report.control_characters import escape_controls
from trimtab.report.screen import sections

Json = Mapping[str, Any]


def post_mortem_lines(record: Json) -> list[str]:
    """Return a post-mortem in full: plain text, safe to print whatever the run holds."""
    stable = record["last_stable"]
    step = "none" if stable["step"] is None else stable["step"]
    lines = [
        f"POST-MORTEM of {record['run']}",
        f"  {record['headline']}",
        f"  last stable step: {step} ({stable['why']}); last step: {record['last_step']}",
    ]
    lines += sections({
        "try first": _advice(record),
        "incidents": [incident_line(one) for one in record["incidents"]],
        "actions": [_action(one) for one in record["actions"]],
        "last readings": [_reading(one) for one in record["readings"]],
        "memory": record["memory"],
        "worst tokens": [token_line(one) for one in record["worst_tokens"]],
        "checkpoints": [f"step {one['step']}: {one['path']}" for one in record["checkpoints"]],
        "code and versions": about_lines(record),
        "configuration": [f"{name}: {value}" for name, value in record["configuration"].items()],
        "the record is not whole": record["gaps"],
    })  # fmt: skip
    return [escape_controls(line) for line in lines]


def token_line(token: Json) -> str:
    """Return a worst token in its context, as one line."""
    word = (
        token["text"]
        if token["text"] is not None
        else "?"
        if token["token_id"] is None
        else f"id {token['token_id']}"
    )
    after = f" after {token['tool']}" if token["tool"] else ""
    where = f"episode {token['episode']}, position {token['position']}{after}"
    text = f"{token['before']}[{word}]{token['after']}"
    return f"{token['value']:.3g} nats, {token['slice']} {token['ratio']}: {text} ({where})"


def about_lines(record: Json) -> list[str]:
    """Return code and versions as lines."""
    git, versions = record["git"], record["versions"]
    dirty = {True: ", with changes that are not committed", False: ", clean"}.get(git["dirty"], "")
    lines = [f"commit {git['commit']} on {git['branch'] or 'no branch'}{dirty}"] if git["commit"] else []
    if versions:
        lines.append(", ".join(f"{name} {text}" for name, text in versions.items()))
    return lines + [
        f"{name}: {value}" for name, value in record["identity"].items() if value not in (None, "")
    ]


def _advice(record: Json) -> list[str]:
    lines = []
    for number, one in enumerate(record["try_first"], 1):
        lines += [f"{number}. {one['do']}", f"   evidence: {one['because']}"]
        if one["command"]:
            lines.append(f"   {_command(one)}")
    return lines


def _command(one: Json) -> str:
    return shlex.join(one["command"])


def incident_line(one: Json) -> str:
    """Return an incident as one line: since when, where, which rules spoke, and the likeliest cause."""
    rules = ", ".join(f"{alarm['rule']} {alarm['step']}" for alarm in one["alarms"])
    likely = [cause["name"] for cause in one["causes"] if cause["score"] > 0][:1]
    cause = ", ".join(likely) or "undecided"
    return f"since step {one['since']} in {one['slice']} ({one['severity']}): {rules}; {cause}"


def _action(one: Json) -> str:
    return f"step {one['step']}: {one['text']} ({one['policy']}, {one['cause']})"


def _reading(one: Json) -> str:
    interval = f" ({one['low']:.4g} to {one['high']:.4g})" if one.get("low") is not None else ""
    return f"{one['name']} in {one['slice']} at step {one['step']}: {one['text']}{interval}"
