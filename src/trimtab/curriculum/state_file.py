"""A state as one JSON file, whole or not there at all; no pickle."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from trimtab.errors import CurriculumError
from trimtab.safe_files import replacing, require_regular


def write_state(path: str | os.PathLike[str], state: dict[str, Any]) -> None:
    """Write a state. It takes the place of the file before once it is on the disk as a whole.

    A process that is killed meanwhile leaves the file before. Raises CurriculumError where it cannot be
    written.
    """
    target = Path(path)
    require_regular(target, CurriculumError)
    try:
        with replacing(target, CurriculumError) as temporary, temporary.open("w", encoding="utf-8") as file:
            json.dump(state, file, allow_nan=False)
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        raise CurriculumError(f"{target} cannot be written: {error.strerror or error}") from error


def read_state(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Return the state in a file. Raises CurriculumError where there is none."""
    target = Path(path)
    require_regular(target, CurriculumError)
    try:
        state = json.loads(target.read_text(encoding="utf-8"))
    except OSError as error:
        raise CurriculumError(
            f"{target} cannot be read: {error.strerror or error}; name the file that a curriculum saved"
        ) from error
    except (ValueError, RecursionError) as error:
        raise CurriculumError(f"{target} is not a curriculum's state: {error}") from error
    if not isinstance(state, dict):
        raise CurriculumError(f"{target} is not a curriculum's state: it holds {type(state).__name__}")
    return state
