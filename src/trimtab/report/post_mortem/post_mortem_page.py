"""What the head of a run's page shows of its post-mortem: texts and short rows."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from typing import Any

from trimtab.report.post_mortem.post_mortem_text import incident_line

Json = dict[str, Any]
_MAX_READINGS = 24
_SHORT_COMMIT = 10


def post_mortem_view(record: Mapping[str, Any] | None) -> Json | None:
    """Return the data of the page's head; None for a run that did not end badly.

    Args:
        record: of `post_mortem`.

    Returns:
        JSON types. The template escapes every text; control characters are shown as pictures already.
    """
    if record is None:
        return None
    return {
        "kind": record["ending"]["kind"],
        "text": record["ending"]["text"],
        "last_step": record["last_step"],
        "stable_step": record["last_stable"]["step"],
        "stable_why": record["last_stable"]["why"],
        "code": _code(record),
        "try_first": [{**one, "command": shlex.join(one["command"])} for one in record["try_first"]],
        "incidents": [incident_line(one) for one in record["incidents"]],
        "readings": record["readings"][:_MAX_READINGS],
        "memory": record["memory"],
        "worst_tokens": [_token(one) for one in record["worst_tokens"]],
        "facts": _facts(record),
    }


def _code(record: Mapping[str, Any]) -> list[list[str]]:
    """Commit and the versions that matter most, as figures beside the steps."""
    git, versions = record["git"], record["versions"]
    commit = (
        git["commit"][:_SHORT_COMMIT] + (" with changes" if git["dirty"] else "") if git["commit"] else ""
    )
    shown = [["Commit", commit]] if commit else []
    return (
        shown
        + [[name, versions[name]] for name in ("trl", "torch", "vllm", "trimtab") if name in versions][:3]
    )


def _token(one: Mapping[str, Any]) -> Json:
    word = (
        one["text"]
        if one["text"] is not None
        else "–"
        if one["token_id"] is None
        else f"id {one['token_id']}"
    )
    after = f", after {one['tool']}" if one["tool"] else ""
    return {
        "before": one["before"], "text": word, "after": one["after"], "value": one["value"],
        "where": f"{one['slice']} {one['ratio']}",
        "position": f"episode {one['episode']}, position {one['position']}{after}",
    }  # fmt: skip


def _facts(record: Mapping[str, Any]) -> list[list[str]]:
    git = record["git"]
    dirty = {True: "tracked files have changes", False: "clean"}.get(git["dirty"], "not known")
    rows = (
        [["commit", git["commit"]], ["branch", git["branch"]], ["working tree", dirty]]
        if git["commit"]
        else []
    )
    rows += [[name, text] for name, text in record["versions"].items()]
    rows += [
        [name.replace("_", " "), str(text)]
        for name, text in record["identity"].items()
        if text not in (None, "")
    ]
    return rows + [[name, str(value)] for name, value in record["configuration"].items()]
