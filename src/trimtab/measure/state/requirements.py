"""What the user says about a run's episodes: which tools and files must be used, when a task is solved."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from trimtab.errors import RunError


@dataclass(frozen=True)
class Requirements:
    """Declarations of `open_run`; all of them optional.

    `required_tools`: tools the policy should use. `key_arguments`: tool -> the argument whose values are
    counted. `required_files`: values of those arguments that should occur, of any of the tools. `solved_at`:
    a sequence with at least this reward solved its task. `groups_span_steps`: a `group` number means the same
    prompt in every step of a window (TRL); otherwise numbers may start over at each step. Raises RunError for
    a required file that no key argument could show.

    >>> Requirements(required_tools=["search"]).config()
    {'required_tools': ['search']}
    """

    required_tools: Sequence[str] = ()
    key_arguments: Mapping[str, str] = field(default_factory=dict)
    required_files: Sequence[str] = ()
    solved_at: float | None = None
    groups_span_steps: bool = False

    def __post_init__(self) -> None:
        for name in ("required_tools", "required_files"):
            if isinstance(getattr(self, name), str):
                raise RunError(f"{name} is a plain string; give a list, as [{getattr(self, name)!r}]")
        if self.required_files and not self.key_arguments:
            raise RunError(
                "required_files needs key_arguments, as {'read_file': 'path'}: nothing names a file otherwise"
            )

    def config(self) -> dict[str, Any]:
        """What was declared, for the run's header."""
        return {name: value for name, value in asdict(self).items() if value}

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> Requirements:
        """Inverse of `config`, of a header that may hold anything else."""
        return cls(**{name: config[name] for name in cls.__dataclass_fields__ if name in config})
