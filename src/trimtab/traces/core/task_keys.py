"""Keys of tasks. Logs number tasks anew in each domain or environment, and task 0 of one is not task 0 of
another."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from hashlib import blake2b
from typing import Any

from trimtab.traces.core.coerce import as_label, as_object

_SPACES = ("domain", "env_id", "env_name", "env", "data_source")
_MAX = 80  # characters of a name; a longer text describes, and names nothing
_RESULTS = re.compile(r"([^/\\]+)--[^/\\]+[/\\][^/\\]+[/\\][^/\\]+\Z")


def task_key(space: str | None, name: str | None) -> str | None:
    """The task's name within its space; a name without a space is as it is.

    >>> task_key("airline", "0"), task_key(None, "0"), task_key("airline", None)
    ('airline/0', '0', None)
    """
    return name if name is None or not space else f"{space}/{name}"


def space_of(value: Mapping[str, Any]) -> str | None:
    """The domain or environment a record names.

    >>> space_of({"domain": "retail"}), space_of({"env": {"a": 1}})
    ('retail', None)
    """
    names = (value.get(name) for name in _SPACES)
    return next((space for space in names if isinstance(space, str) and 0 < len(space) <= _MAX), None)


def tau_space(info: Mapping[str, Any], messages: list[Any]) -> str | None:
    """tau-bench names no domain: the customer of the task stands for it, or else the policy in the system
    prompt.

    >>> (tau_space({"task": {"user_id": "mia_li_3668"}}, []), tau_space({}, [{"role": "system",
    ...     "content": "# Retail"}]))
    ('mia_li_3668', 'b7911322')
    """
    user = as_object(info.get("task")).get("user_id")
    if isinstance(user, str) and 0 < len(user) <= _MAX:
        return user
    first = as_object(messages[0] if messages else None)
    if first.get("role") != "system":
        return None
    return blake2b(json.dumps(first.get("content")).encode(), digest_size=4).hexdigest()


def env_of_path(file: str) -> str | None:
    """verifiers saves to `outputs/evals/ENV--MODEL/RUN/results.jsonl`, and newer versions name the
    environment nowhere else.

    >>> env_of_path("outputs/evals/gsm8k--gpt-4o/1f2e/results.jsonl"), env_of_path("results.jsonl")
    ('gsm8k', None)
    """
    match = _RESULTS.search(file)
    return as_label(match[1]) if match else None
