"""The run store's writer: append-only, crash-safe, no locks.

Every row is handed to the kernel in one write before `commit` returns, so a killed process loses no flushed
step.

Seal a finished run: every data file is compressed; readers see no difference, a resume opens new files beside
it.
"""

from __future__ import annotations

import gzip
import json
import os
import secrets
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

import trimtab._version as version
from trimtab.errors import RunError
from trimtab.runs.schema import COMPRESSED, FORMAT, KINDS, dumps, file_name, parse_name


class RunWriter:
    """Writes one rank's session of a run folder; creates the folder and `run.json` when they are not there.

    Raises RunError when `folder` is a file, holds something that is not a run, or a run of a newer format.
    """

    def __init__(
        self, folder: str | os.PathLike[str], rank: int = 0, config: Mapping[str, Any] | None = None
    ) -> None:
        self.folder, self.rank = Path(folder), rank
        self.header = self._open_folder(dict(config or {}))
        self.session, self._files = self._open_session()
        self._num_steps, self._last_step, self._ended_at = 0, -1, -1

    def write(self, kind: str, rows: Iterable[dict[str, Any]]) -> None:
        """Append rows; they are in the kernel's hands when this returns."""
        data = "".join(dumps(row) + "\n" for row in rows).encode("ascii")
        if data:
            self.require_open()
        while data:
            data = data[os.write(self._files[kind], data) :]

    def require_open(self) -> None:
        """RunError after `close`."""
        if not self._files:
            raise RunError(f"the run in {self.folder} is closed; open it again to continue")

    def commit(self, step_row: dict[str, Any]) -> None:
        """Write the row that makes a step part of the run; call it last."""
        self.write("steps", [step_row])
        self._num_steps, self._last_step = self._num_steps + 1, int(step_row.get("step", -1))

    def end(self, reason: str, detail: Mapping[str, Any] | None = None) -> None:
        """Record how the run ended, e.g. "finished", "exception" or "signal"; the files stay open.

        Steps written later make the row void, as a second `train()` does. Of several calls the first one
        counts.
        """
        if self._files and self._ended_at != self._num_steps:
            row = {
                "step": self._last_step,
                "time": time.time(),
                "reason": reason,
                "detail": dict(detail or {}),
            }
            self.write("end", [row | {"num_steps": self._num_steps}])
            self._ended_at = self._num_steps

    def sync(self) -> None:
        """Force everything to the disk, for machines that may lose power and not only processes."""
        for file in self._files.values():
            os.fsync(file)

    def close(self) -> None:
        """End the run, as "closed" where `end` was not called, and close the files. Opening the folder again
        resumes it."""
        self.end("closed")
        for file in self._files.values():
            os.close(file)
        self._files = {}

    def __enter__(self) -> RunWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _open_folder(self, config: dict[str, Any]) -> dict[str, Any]:
        folder, path = self.folder, self.folder / "run.json"
        if folder.exists() and not folder.is_dir():
            raise RunError(f"{folder} is a file; give a folder for the run")
        if (
            folder.is_dir()
            and not path.exists()
            and any(not f.name.startswith(".") for f in folder.iterdir())
        ):
            raise RunError(f"{folder} holds files and no run.json; give an empty or new folder for the run")
        folder.mkdir(parents=True, exist_ok=True)
        header = {
            "trimtab_run": FORMAT,
            "run_id": secrets.token_hex(8),
            "created": time.time(),
            "trimtab_version": version.__version__,
            "config": config,
        }
        if not path.exists():
            self._publish(path, json.dumps(header, indent=1, default=str))
        return read_header(folder)

    def _publish(self, path: Path, text: str) -> None:
        """Create `path` with its whole content or not at all; the first rank wins."""
        temporary = path.with_name(f".run.json.{os.getpid()}.{secrets.token_hex(4)}")
        temporary.write_text(text)
        try:
            os.link(temporary, path)
        except FileExistsError:
            pass
        except OSError:  # a file system without hard links
            os.replace(temporary, path)
        temporary.unlink(missing_ok=True)

    def _open_session(self) -> tuple[int, dict[str, int]]:
        names = [parse_name(item.name) for item in self.folder.iterdir()]
        session = 1 + max((n[2] for n in names if n and n[1] == self.rank), default=-1)
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND
        while True:
            try:
                first = os.open(self.folder / file_name("steps", self.rank, session), flags, 0o644)
                break
            except FileExistsError:  # another process of this rank took the number
                session += 1
        files = {"steps": first}
        for kind in KINDS:
            if kind != "steps":
                files[kind] = os.open(self.folder / file_name(kind, self.rank, session), flags, 0o644)
        return session, files


def read_header(folder: str | os.PathLike[str]) -> dict[str, Any]:
    """Return `run.json` of a run folder.

    Args:
        folder: a run folder.

    Returns:
        The header: `trimtab_run` (the format), `run_id`, `created` (seconds since 1970), `trimtab_version`,
            `config`.

    Raises:
        RunError: the header is missing, not ours, damaged or of a newer format.

    Example:
        config = read_header("runs/exp1")["config"]
    """
    path = Path(folder) / "run.json"
    if not Path(folder).exists():
        raise RunError(f"{folder} does not exist; give the folder a run was written to")
    if not path.is_file():
        raise RunError(f"{folder} is not a run folder: it has no run.json")
    try:
        header = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise RunError(f"{path} cannot be read: {error}") from error
    version = header.get("trimtab_run") if isinstance(header, dict) else None
    if not isinstance(version, int) or isinstance(version, bool) or version < 1:
        raise RunError(f"{path} is not a trimtab run header: it has no positive integer 'trimtab_run'")
    if header["trimtab_run"] > FORMAT:
        raise RunError(
            f"{path} has format {header['trimtab_run']}, this trimtab reads up to {FORMAT}; upgrade with "
            f"pip install -U trimtab"
        )
    if not isinstance(header.get("config"), dict):
        raise RunError(f"{path} is not a trimtab run header: its 'config' is not an object")
    return dict(header)


def compress_run(folder: str | os.PathLike[str]) -> int:
    """Compress the data files of a run that nobody writes to any more.

    A file is replaced only after its compressed copy is complete on disk, so a crash loses nothing. Readers
    see no difference, and a resume opens new files. The same content gives the same bytes.

    Args:
        folder: a run folder.

    Returns:
        Bytes saved.

    Raises:
        RunError: the folder is not a run.

    Example:
        saved = compress_run("runs/exp1")
    """
    read_header(folder)
    saved = 0
    for path in sorted(Path(folder).iterdir()):
        if parse_name(path.name) is None or path.suffix == COMPRESSED:
            continue
        data = path.read_bytes()
        packed = gzip.compress(data, compresslevel=9, mtime=0)
        half = path.with_name(path.name + COMPRESSED + ".part")
        with half.open("wb") as out:
            out.write(packed)
            out.flush()
            os.fsync(out.fileno())
        half.rename(path.with_name(path.name + COMPRESSED))
        path.unlink()
        saved += len(data) - len(packed)
    return saved
