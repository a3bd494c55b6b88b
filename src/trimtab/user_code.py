"""Objects of the user's own code, by the names that commands take: `module:name` or `path/file.py:name`."""

from __future__ import annotations

import importlib
import importlib.util
import re
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

from trimtab.errors import TrimtabError

__all__ = ["load_object"]


def load_object(module: str, name: str, error: type[TrimtabError]) -> Any:
    """Import a module of the user's and return what it calls `name`.

    Args:
        module: `package.module`, looked for in the working directory too, or `path/file.py`, which may import
            what lies in its own folder.
        name: A name in it; `first.second` for a name inside another.
        error: Class of the error for a file or a name that is not there.

    Returns:
        The object, whatever it is.

    Raises:
        TrimtabError: Of the class `error`: there is no such file, or no such name in it. What the user's own
            code raises while it is imported comes through as it is.

    Example:
        >>> from trimtab.errors import ToolError
        >>> load_object("json", "decoder.JSONDecoder", ToolError).__name__
        'JSONDecoder'
    """
    _search_first(str(Path.cwd()))  # as `python -m` does
    value: Any = _of_file(module, error) if module.endswith(".py") else importlib.import_module(module)
    try:
        for part in name.split("."):
            value = getattr(value, part)
    except AttributeError as missing:
        raise error(f"module {module} has no {name}; {missing}") from missing
    return value


def _of_file(name: str, error: type[TrimtabError]) -> ModuleType:
    path = Path(name)
    spec = importlib.util.spec_from_file_location(re.sub(r"\W", "_", path.stem), path)
    if spec is None or spec.loader is None or not path.is_file():
        raise error(f"{name} is not a Python file; write path/file.py:function")
    _search_first(str(path.resolve().parent))
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def _search_first(folder: str) -> None:
    if folder not in sys.path:
        sys.path.insert(0, folder)
