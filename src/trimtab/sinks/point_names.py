"""Names of points that a tracker takes: stable, and different for different points.

A name is `trimtab/<slice>/<key>`, as `trimtab/post_tool/drift/p99`. Trackers group by the slash. Where a name
holds what a tracker refuses, such as a tool called `run[bash]` in MLflow, each such character becomes `_` and
six digits of a hash of the whole name are added, so that two tools never share a curve.
"""

from __future__ import annotations

import hashlib
import re
from functools import lru_cache
from typing import NamedTuple


class NameRule(NamedTuple):
    """What a tracker takes as a name."""

    refused: str  # regular expression of one character
    max_length: int


PLAIN = NameRule(r"[\x00-\x1f\x7f]", 1_000)
"""W&B, TensorBoard and trackio take any printable text."""
MLFLOW = NameRule(r"[^/A-Za-z0-9_.\- :]", 250)
"""MLflow's rule for names of metrics (`mlflow.utils.validation`), without letters outside of ASCII.

Reference: https://mlflow.org/docs/latest/python_api/mlflow.html#mlflow.log_metric
"""
_HASH = 6


@lru_cache(maxsize=65_536)
def legal_name(name: str, rule: NameRule) -> str:
    """Return `name` where the tracker takes it, else one that it takes.

    Args:
        name: `trimtab/<slice>/<key>`.
        rule: what the tracker takes.

    Returns:
        A name without refused characters, empty parts, `.` or `..` as a part, and of legal length.

    Example:
        >>> legal_name("trimtab/all/drift/p99", MLFLOW), legal_name("trimtab/post_tool/run[bash]/n", MLFLOW)
        ('trimtab/all/drift/p99', 'trimtab/post_tool/run_bash_/n.00b1ec')
    """
    legal = re.sub(rule.refused, "_", name)
    legal = "/".join("_" if part in ("", ".", "..") else part for part in legal.split("/"))
    if legal == name and len(name) <= rule.max_length:
        return name
    digits = hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[:_HASH]
    return f"{legal[: rule.max_length - _HASH - 1]}.{digits}"
