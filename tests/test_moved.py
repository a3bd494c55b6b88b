"""Names that 0.1 documented import from their old paths, with a warning, and only when they are asked for."""

from __future__ import annotations

import importlib
import subprocess
import sys

import pytest

from trimtab._moved import MOVED

OLD = [(module, name, *new) for module, names in MOVED.items() for name, new in names.items()]
# When this module moves, add it to MOVED.
OLD += [("trimtab.traces.read", "read_episodes", "trimtab.traces", "read_episodes")]


@pytest.mark.parametrize(("old", "name", "home", "new"), OLD, ids=lambda item: item)
def test_the_old_path_gives_the_same_object(old: str, name: str, home: str, new: str) -> None:
    module = importlib.import_module(old)
    if old in MOVED:
        with pytest.warns(DeprecationWarning, match=new):
            value = getattr(module, name)
        assert value is getattr(importlib.import_module(home), new)
        with pytest.raises(AttributeError, match="nothing"):
            module.nothing  # noqa: B018
    assert callable(getattr(module, name))


def test_a_module_that_never_was_is_not_found() -> None:
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module("trimtab.runs.nothing")


def test_importing_trimtab_loads_none_of_them() -> None:
    heavy = "numpy", "trimtab.runs", "trimtab.traces", "trimtab.measure"
    code = f"import sys, trimtab; print([name for name in {heavy!r} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
