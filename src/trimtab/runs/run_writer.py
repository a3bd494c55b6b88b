"""The run store's writer: append-only and crash-safe; one live process a rank (`rank_lock`).

Every row is handed to the kernel in one write before `commit` returns, so a killed process loses no flushed
step.

When the disk is full or fails, the file `.ok.r<rank>.s<session>` made at the start is renamed to
`FAILED.r<rank>.s<session>`, which needs no space, and renamed back once a step is written without a failure.
That step's row says what was lost.
"""

from __future__ import annotations

import errno
import json
import logging
import os
import secrets
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any

import trimtab._version as version
from trimtab.errors import RunError
from trimtab.runs.rank_lock import RankLock
from trimtab.runs.row_lines import encode_row
from trimtab.runs.run_files import read_header
from trimtab.runs.schema import FORMAT, KINDS, file_name, lost_steps_text, parse_name, whole_number
from trimtab.safe_files import folder_path

log = logging.getLogger("trimtab")


class RunWriter:
    """Writes one rank's session of a run folder; creates the folder and `run.json` when they are not there.

    A rank that another live process writes is not shared: this writer takes the next free one and says so.

    Raises RunError when `folder` is a file, holds something that is not a run or a run of a newer format, or
    cannot be written.
    """

    def __init__(
        self, folder: str | os.PathLike[str], rank: int = 0, config: Mapping[str, Any] | None = None
    ) -> None:
        self.folder, rank = folder_path(folder, RunError), whole_number("rank", rank, 0)
        self.failure = ""  # why the last write failed; empty while writes work
        # called with the rows of each write, also of one that the disk does not take
        self.listener: Callable[[str, list[dict[str, Any]]], None] | None = None
        self.rank_notice = ""  # why `rank` is not the one asked for; empty when it is
        self._files: dict[str, int] = {}
        try:
            self.header = self._open_folder(dict(config or {}))
            self.rank, self._lock = self._lock_rank(rank)
            self.session, self._files = self._open_session()
            self._marker().touch()
        except OSError as error:
            raise RunError(f"a run cannot be written to {self.folder}: {error.strerror or error}") from error
        self._next = dict.fromkeys(KINDS, 0)
        self._torn: set[str] = set()
        self.last_step, self._ended_at = -1, -1
        self._lost: dict[str, int] = {}  # first, last and number of the steps that could not be written
        self._failed_in_step = False
        if self.rank_notice:
            log.warning("trimtab: %s", self.rank_notice)
            self.write(
                "errors", [{"step": -1, "time": time.time(), "where": "open", "error": self.rank_notice}]
            )

    def write(self, kind: str, rows: Iterable[dict[str, Any]], *, retried: bool = False) -> None:
        """Append rows; they are in the kernel's hands when this returns.

        Raises OSError where the disk takes no more; with `retried` the caller writes these rows again then.
        """
        self.require_open()
        rows = list(rows)
        first, num_steps = self._next[kind], self._next["steps"]
        data = b"".join(encode_row(row, first + i, num_steps) for i, row in enumerate(rows))
        if not data:
            return
        if self.listener is not None and not retried:
            self.listener(kind, rows)
        self._next[kind] += data.count(b"\n")  # also where the write fails: readers see that rows are missing
        try:
            if os.fstat(self._files[kind]).st_nlink == 0:
                raise OSError(
                    errno.ENOENT, f"the files of the run were deleted while it wrote to {self.folder}"
                )
            data = b"\n" + data if kind in self._torn else data
            while data:
                data = data[os.write(self._files[kind], data) :]
        except OSError as error:
            self._torn.add(kind)
            self._next[kind] = first if retried else self._next[kind]
            self.mark_failed(error.strerror or str(error))
            raise
        self._torn.discard(kind)
        if self.listener is not None and retried:
            self.listener(kind, rows)

    def require_open(self) -> None:
        """RunError after `close`."""
        if not self._files:
            raise RunError(f"the run in {self.folder} is closed; open it again to continue")

    def commit(self, step_row: dict[str, Any]) -> None:
        """Write the row that makes a step part of the run; call it last. It counts the rows written so far,
        by kind."""
        step = int(step_row.get("step", -1))
        if self._lost.get("last") == step:  # the second attempt of one step
            self._next["steps"] -= 1
        counts = {kind: count for kind, count in self._next.items() if kind != "steps"}
        row = {**step_row, "clock": round(time.monotonic(), 3), "n": counts}
        if self._lost and self._lost["last"] != step:
            row["lost"] = self._lost
        try:
            self.write("steps", [row])
        except OSError:
            if self._lost.get("last") != step:
                first, count = self._lost.get("first", step), self._lost.get("num_steps", 0) + 1
                self._lost = {"first": first, "last": step, "num_steps": count}
            self._failed_in_step = False
            raise
        self.last_step = step
        self._settle_failure(step)

    def position(self) -> dict[str, tuple[int, int]]:
        """Return kind -> rows and bytes that this session has written."""
        return {kind: (self._next[kind], os.fstat(file).st_size) for kind, file in self._files.items()}

    def mark_failed(self, why: str) -> None:
        """Say in the log, once, and by the name of a file that the record has a hole from here on."""
        self._failed_in_step = True
        if self.failure:
            return
        self.failure = why
        log.error(
            "trimtab CANNOT WRITE to %s (%s). Training goes on and nothing is watched from step %d on, until writes work again.",  # noqa: E501
            self.folder, why, self.last_step + 1,
        )  # fmt: skip
        with suppress(OSError):
            self._marker().rename(self._marker("FAILED"))

    def _settle_failure(self, step: int) -> None:
        """A step is written: the failure is over when nothing else failed since the last one."""
        if self.failure and not self._failed_in_step:
            with suppress(OSError):
                self._marker("FAILED").rename(self._marker())
            log.warning("trimtab: writes to %s work again since step %d", self.folder, step)
            self.failure = ""
        if self._lost and self._lost["last"] != step:
            log.warning("trimtab: lost %s", lost_steps_text(self._lost))
        self._lost, self._failed_in_step = {}, False

    def _marker(self, word: str = ".ok") -> Path:
        return self.folder / f"{word}.r{self.rank}.s{self.session}"

    def end(self, reason: str, detail: Mapping[str, Any] | None = None) -> None:
        """Record how the run ended, e.g. "finished", "exception" or "signal"; the files stay open.

        Steps written later make the row void, as a second `train()` does. Of several calls the first one
        counts.
        """
        num_steps = self._next["steps"]
        if self._files and self._ended_at != num_steps:
            row = {
                "step": self.last_step,
                "time": time.time(),
                "reason": reason,
                "detail": dict(detail or {}),
            }
            if self._lost:
                row["lost"] = self._lost
            self.write("end", [row | {"num_steps": num_steps}])
            self._ended_at = num_steps

    def sync(self) -> None:
        """Force everything to the disk, for machines that may lose power and not only processes."""
        for file in self._files.values():
            os.fsync(file)

    def close(self) -> None:
        """End the run, as "closed" where `end` was not called, and close the files. Opening the folder again
        resumes it."""
        if not self._files:
            return
        try:
            self.end("closed")
        finally:
            for file in self._files.values():
                os.close(file)
            self._files = {}
            self._lock.release()
            self._marker().unlink(missing_ok=True)

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

    def _lock_rank(self, rank: int) -> tuple[int, RankLock]:
        """The rank to write as: the one asked for, or the next one that no other live process writes as."""
        lock = first = RankLock(self.folder, rank)
        while not lock.acquire():
            rank += 1
            lock = RankLock(self.folder, rank)
        if first.owner:
            self.rank_notice = (
                f"{first.owner} is writing rank {first.rank} of {self.folder}: this process "
                f"writes as rank {rank}. Give each process its own rank (open_run(rank=...)), or its own folder."  # noqa: E501
            )
        return rank, lock

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
