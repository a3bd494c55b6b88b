"""Where `trimtab export` writes: files of this machine, checked before a tracker's library is loaded."""

from __future__ import annotations

import os
import re
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from trimtab.errors import SinkError

if TYPE_CHECKING:
    from trimtab.sinks.sink import Sink

_ADDRESS = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):/")
_SQLITE_URI, _SQLITE_HEADER = "sqlite:///", b"SQLite format 3\0"


def target_path(name: str, output: str) -> Path:
    """Return the file or folder of `-o`. An address is refused and not shown: it may hold a password.

    >>> target_path("mlflow", "sqlite:///q.db"), target_path("mlflow", "sqlite:////data/q.db")
    (PosixPath('q.db'), PosixPath('/data/q.db'))
    """
    address = _ADDRESS.match(output)
    if address is None:
        return Path(output)
    if name == "mlflow" and output.startswith(_SQLITE_URI) and len(output) > len(_SQLITE_URI):
        return Path(output.removeprefix(_SQLITE_URI))
    wanted = "a file of SQLite, as -o mlflow.db" if name == "mlflow" else f"a folder, as -o {name}"
    raise SinkError(f"-o is an address ({address[1]}:, not shown), and export writes files: give {wanted}")


def file_sink(name: str, output: Path) -> Sink:
    """Return the sink that writes to files of this machine. Raises SinkError for what cannot be written."""
    from trimtab.sinks.mlflow_sink import MlflowSink
    from trimtab.sinks.tensorboard_sink import TensorBoardSink
    from trimtab.sinks.tracker_libraries import require_tracker
    from trimtab.sinks.trackio_sink import TrackioSink
    from trimtab.sinks.wandb_sink import WandbSink

    require_tracker(name)
    if name == "mlflow":
        if output.is_dir():
            raise SinkError(f"{output} is a folder; give a file of SQLite, as -o mlflow.db")
        _check_file(output)
        return MlflowSink(f"{_SQLITE_URI}{output.absolute()}")
    if output.exists() and not output.is_dir():
        raise SinkError(f"{output} is a file; give a folder")
    _check_folder(output, output)
    _check_folder(output.absolute().parent, output)  # for the mark
    if name == "wandb":
        return WandbSink(folder=output, mode="offline")
    return TensorBoardSink(output) if name == "tensorboard" else TrackioSink(folder=output)


def _check_file(output: Path) -> None:
    _check_folder(output.absolute().parent, output)
    if not os.path.lexists(output):
        return
    try:
        with output.open("r+b") as file:
            start = file.read(len(_SQLITE_HEADER))
    except OSError as error:
        raise SinkError(f"{output} cannot be written: {error.strerror or error}") from error
    if start and start != _SQLITE_HEADER:
        raise SinkError(f"{output} is not a file of SQLite; give another one, as -o mlflow.db")


def _check_folder(folder: Path, output: Path) -> None:
    """Create a folder, and a file in it that is gone at once."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            return
    except OSError as error:
        raise SinkError(f"{output} cannot be written: {error.strerror or error}") from error
