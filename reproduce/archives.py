"""Recorded runs are kept in zip archives, one an arm. This module unpacks them for reading and packs new runs.

A store is a folder of archives, `<store>/<arm>.zip`; the members are the files of the runs, with their paths in the unpacked store. A folder
without archives is a store that needs no unpacking, such as a user's own `--bank`. Archives are deterministic: sorted members, fixed times.

    python reproduce/archives.py FOLDER STORE    # pack a folder of the pilot's runs that was recorded with --bank
"""

from __future__ import annotations

import atexit
import os
import shutil
import sys
import tempfile
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path, PurePosixPath

sys.path.insert(0, str(Path(__file__).parents[1]))

from trimtab.errors import RunError

__all__ = ["arm_of", "files_below", "pack", "recording", "unpacked"]

MAX_FILES, MAX_BYTES = 2000, 64 << 20  # of one archive, unpacked
RESTORE = "restore it (git restore)"


def arm_of(member: PurePosixPath) -> str:
    """Return the arm whose archive holds a file, from the folder of its run: `tuning/open-s0/run.json` -> `open`."""
    return member.parent.name.rpartition("-s")[0]


def files_below(folder: Path) -> list[Path]:
    """Return every file below a folder."""
    return sorted(path for path in folder.rglob("*") if path.is_file())


@cache
def unpacked(store: Path) -> Path:
    """Return the folder of a store's runs: a temporary one, removed at exit, or the store itself where it has no archives."""
    archives = sorted(store.glob("*.zip"))
    if not archives:
        return store
    folder = Path(tempfile.mkdtemp(prefix="trimtab-runs-"))
    atexit.register(_remove, folder, os.getpid())
    for archive in archives:
        _unpack(archive, folder)
    return folder


def pack(folder: Path, files: Iterable[Path], archive: Path) -> None:
    """Write files below a folder into one archive, which appears whole or not at all. Equal files give equal bytes."""
    archive.parent.mkdir(parents=True, exist_ok=True)
    half = archive.with_name(archive.name + ".part")
    with zipfile.ZipFile(half, "w") as target:
        for file in sorted(files):
            info = zipfile.ZipInfo(file.relative_to(folder).as_posix(), (1980, 1, 1, 0, 0, 0))
            info.create_system, info.external_attr = 3, 0o644 << 16
            info.compress_type = zipfile.ZIP_STORED if file.suffix == ".gz" else zipfile.ZIP_DEFLATED
            target.writestr(info, file.read_bytes(), compresslevel=9)
    half.replace(archive)


@contextmanager
def recording(
    store: Path,
    finished_files: Callable[[Path], Iterable[Path]],
    archive_of: Callable[[PurePosixPath], str] = arm_of,
) -> Iterator[Path]:
    """Yield the unpacked store, and at the end, also after an interruption, pack the finished runs that were added to it.

    Args:
        store: Folder of archives. A folder without archives is yielded as it is, and nothing is packed.
        finished_files: Takes the unpacked store and returns the files of its finished runs.
        archive_of: Takes the path of a file in the unpacked store and returns the name of its archive.
    """
    folder = unpacked(store)
    if folder == store:
        yield store
        return
    before = set(finished_files(folder))
    try:
        yield folder
    finally:
        files = set(finished_files(folder))
        names = {file: archive_of(PurePosixPath(file.relative_to(folder).as_posix())) for file in files}
        for name in sorted({names[file] for file in files - before}):
            pack(folder, [file for file in files if names[file] == name], store / f"{name}.zip")


def _unpack(archive: Path, folder: Path) -> None:
    try:
        with zipfile.ZipFile(archive) as source:
            members = source.infolist()
            if len(members) > MAX_FILES or sum(member.file_size for member in members) > MAX_BYTES:
                raise RunError(
                    f"{archive} has more than {MAX_FILES} files or {MAX_BYTES >> 20} MiB; {RESTORE}"
                )
            for member in members:
                name = PurePosixPath(member.filename)
                if name.is_absolute() or ".." in name.parts or "\\" in member.filename:
                    raise RunError(f"{archive} has a file outside its folder, {member.filename!r}; {RESTORE}")
                path = folder / name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(source.read(member))  # reads at most file_size bytes, and checks the CRC
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError) as error:
        raise RunError(f"{archive} is damaged: {error}; {RESTORE}") from error


def _remove(folder: Path, owner: int) -> None:
    if os.getpid() == owner:  # a forked child shares the folder
        shutil.rmtree(folder, ignore_errors=True)


def main(arguments: list[str]) -> int:
    """Pack every run of a folder into the archives of a store."""
    folder, store = map(Path, arguments)
    files: dict[str, list[Path]] = {}
    for file in files_below(folder):
        files.setdefault(arm_of(PurePosixPath(file.relative_to(folder).as_posix())), []).append(file)
    for name, of_arm in files.items():
        pack(folder, of_arm, store / f"{name}.zip")
    print(f"{len(files)} archives in {store}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
