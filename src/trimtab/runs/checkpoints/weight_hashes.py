"""Hashes of a checkpoint's weights: written down at the save, compared before a resume."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path

from trimtab.catalog import bound
from trimtab.runs.checkpoints.checkpoint_files import weight_names

_BLOCK = 2**20

Files = dict[str, list[int | str]]
"""Path inside the checkpoint -> bytes and SHA-256; the hash is empty where none was computed."""


def sha256_of(path: Path) -> str:
    """Return the SHA-256 of a file, as `sha256sum` prints it; the file is read in blocks of 1 MiB."""
    digest, buffer = hashlib.sha256(), bytearray(_BLOCK)
    view = memoryview(buffer)
    with path.open("rb", buffering=0) as file:
        while size := file.readinto(view):
            digest.update(view[:size])
    return digest.hexdigest()


def hashed_names(files: Mapping[str, int]) -> list[str]:
    """Return the files that are hashed: the weights, and small ones, as states of samplers and schedulers."""
    weights = set(weight_names(dict(files)))
    small = bound("hash_small")
    return [name for name, size in files.items() if name in weights or size <= small]


def hash_files(folder: Path, files: Mapping[str, int]) -> Files:
    """Return bytes and hashes of a checkpoint's files, weights first.

    Args:
        folder: the checkpoint.
        files: of `checkpoint_files`.

    Returns:
        Every file; those that are large and hold no weights without a hash.

    Raises:
        OSError: a file cannot be read, or was deleted meanwhile.
    """
    weights = weight_names(dict(files))
    wanted = set(hashed_names(files))
    order = [*weights, *(name for name in files if name not in weights)]
    return {name: [files[name], sha256_of(folder / name) if name in wanted else ""] for name in order}


def weights_hash(files: Mapping[str, list[int | str]]) -> str:
    """Return one hash of the weights; empty where a file of them has none.

    Of a single file it is that file's SHA-256; of shards the SHA-256 of what `sha256sum` prints of them, in
    the order of their names.

    >>> weights_hash({"model.safetensors": [3, "ab"], "optimizer.pt": [9, ""]})
    'ab'
    >>> weights_hash({"model-1.safetensors": [3, "ab"], "model-2.safetensors": [3, ""]})
    ''
    """
    names = weight_names(dict.fromkeys(files, 0))
    hashes = [str(files[name][1]) for name in names]
    if not hashes or not all(hashes):
        return ""
    if len(hashes) == 1:
        return hashes[0]
    lines = "".join(f"{one}  {name}\n" for one, name in zip(hashes, names, strict=True))
    return hashlib.sha256(lines.encode()).hexdigest()
