"""Old paths of names that version 0.1 documented: they import with a DeprecationWarning until 0.2."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Sequence
from importlib import import_module
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

MOVED: dict[str, dict[str, tuple[str, str]]] = {
    "trimtab.measure.declared": {"Declared": ("trimtab.measure.state.requirements", "Requirements")},
    "trimtab.runs.metric_logs": {"read_metric_log": ("trimtab.metric_logs", "read_metric_log")},
    "trimtab.runs.seal": {"seal": ("trimtab.runs", "compress_run")},
    "trimtab.traces.own": {"TraceWriter": ("trimtab.traces.native.episode_writer", "TraceWriter")},
}
"""Old module -> old name -> (new module, new name)."""


class _MovedModules(MetaPathFinder, Loader):
    """Finder and loader of the modules of `MOVED`; asked last, after every finder that knows a file."""

    def find_spec(
        self,
        fullname: str,
        path: Sequence[str] | None,  # noqa: ARG002
        target: ModuleType | None = None,  # noqa: ARG002
    ) -> ModuleSpec | None:
        return ModuleSpec(fullname, self) if fullname in MOVED else None

    def exec_module(self, module: ModuleType) -> None:
        def moved(name: str) -> Any:
            if name not in MOVED[module.__name__]:
                raise AttributeError(f"module {module.__name__!r} has no attribute {name!r}")
            home, new = MOVED[module.__name__][name]
            text = f"{module.__name__}.{name} is now {home}.{new}; the old path goes with version 0.2"
            warnings.warn(text, DeprecationWarning, stacklevel=2)
            return getattr(import_module(home), new)

        module.__dict__["__getattr__"] = moved


def install() -> None:
    """Make the old paths importable."""
    if not any(isinstance(finder, _MovedModules) for finder in sys.meta_path):
        sys.meta_path.append(_MovedModules())
