"""Libraries of the extras `tools` and `mcp`, imported when first used, refused with one line when absent."""

from __future__ import annotations

from importlib import import_module
from types import ModuleType

from trimtab.errors import ToolError

EXTRAS = {
    "anyio": "tools",
    "jsonschema_rs": "tools",
    "tenacity": "tools",
    "httpx2": "tools",
    "hdrh": "tools",
    "mcp": "mcp",
}
"""Library -> the extra that brings it."""


def library(name: str) -> ModuleType:
    """Return a library of an extra, such as `jsonschema_rs` or `hdrh.histogram`.

    Args:
        name: Its import name, with or without a submodule.

    Returns:
        The module.

    Raises:
        ToolError: It is not installed; the line says which extra brings it.

    Example:
        >>> library("mcp_of_tomorrow")
        Traceback (most recent call last):
            ...
        trimtab.errors.ToolError: tools need mcp_of_tomorrow: pip install 'trimtab[tools]'
    """
    try:
        return import_module(name)
    except ImportError as error:
        root = name.partition(".")[0]
        extra = EXTRAS.get(root, "tools")
        raise ToolError(f"tools need {root}: pip install 'trimtab[{extra}]'") from error
