"""Libraries of trackers, imported when a sink opens, refused with one line when absent."""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from types import ModuleType

from trimtab.errors import SinkError

TRACKERS = ("wandb", "tensorboard", "mlflow", "trackio")
"""Libraries that have a sink; the extra of each has the same name."""


def tracker_library(name: str) -> ModuleType:
    """Return a tracker's library.

    Args:
        name: its import name, with or without a submodule.

    Returns:
        The module.

    Raises:
        SinkError: it is not installed; the line says which extra brings it.

    Example:
        >>> tracker_library("tracker_of_tomorrow")
        Traceback (most recent call last):
            ...
        trimtab.errors.SinkError: tracker_of_tomorrow is not installed: pip install 'trimtab[tracker_of_tomorrow]'
    """  # noqa: E501
    try:
        return import_module(name)
    except ImportError as error:
        raise SinkError(_missing(name.partition(".")[0])) from error


def require_tracker(name: str) -> None:
    """Raise SinkError where a tracker's library is not installed, without importing it.

    Args:
        name: one of `TRACKERS`.

    Raises:
        SinkError: it is not installed.

    Example:
        >>> require_tracker("tracker_of_tomorrow")
        Traceback (most recent call last):
            ...
        trimtab.errors.SinkError: tracker_of_tomorrow is not installed: pip install 'trimtab[tracker_of_tomorrow]'
    """  # noqa: E501
    if find_spec(name) is None:
        raise SinkError(_missing(name))


def _missing(root: str) -> str:
    return f"{root} is not installed: pip install 'trimtab[{root}]'"
