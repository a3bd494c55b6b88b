"""What a run is: command, code, host, versions and hardware, for the header of its folder. No environment
variables."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import socket
import subprocess
import sys
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from trimtab._version import __version__
from trimtab.runs.secret_masks import masked

_PACKAGES = ("torch", "transformers", "trl", "verl", "vllm", "accelerate", "peft", "numpy")


def identity() -> dict[str, Any]:
    """Return what this process is; nothing of it is looked up on a network, and no module is imported for
    it."""
    torch = sys.modules.get("torch")
    return {
        "command": " ".join(masked(list(getattr(sys, "orig_argv", sys.argv))[:64]))[:2000],
        **git_state(_git_folder()),
        "host": socket.gethostname(),
        "platform": platform.platform(),
        **_versions(),
        "cpus": os.cpu_count(),
        "accelerators": _accelerators(torch),
    }


def session_facts() -> dict[str, Any]:
    """Return what may differ from one session of a run to the next: code and versions."""
    return {**git_state(_git_folder()), **_versions()}


def _versions() -> dict[str, Any]:
    """Return the versions of Python, of the packages that are loaded, and of the CUDA that torch was built
    for."""
    packages = {name: _version(name) for name in _PACKAGES if name in sys.modules}
    cuda = getattr(getattr(sys.modules.get("torch"), "version", None), "cuda", None)
    return {
        "python": platform.python_version(),
        "versions": {"trimtab": __version__, **packages, **({"cuda": str(cuda)} if cuda else {})},
    }


def trainer_identity(trainer: Any) -> dict[str, Any]:
    """Return model, learning rate, beta, group size and the like of a trainer, those that it has."""
    args, model = getattr(trainer, "args", None), getattr(trainer, "model", None)
    config = getattr(model, "config", None)
    values = {
        "model": getattr(config, "_name_or_path", "") or type(model).__name__,
        "learning_rate": getattr(args, "learning_rate", None),
        "beta": getattr(trainer, "beta", getattr(args, "beta", None)),
        "group_size": getattr(trainer, "num_generations", None),
        "loss_type": getattr(args, "loss_type", None),
        "batch_size": getattr(args, "per_device_train_batch_size", None),
        "gradient_accumulation": getattr(args, "gradient_accumulation_steps", None),
        "max_steps": getattr(args, "max_steps", None),
        "seed": getattr(args, "seed", None),
    }
    return {name: value for name, value in values.items() if isinstance(value, (str, int, float, list))}


def with_identity(config: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return the config of a new run with its `identity`; what the caller gave of it counts."""
    given_config = dict(config or {})
    own = given_config.get("identity")
    return {**given_config, "identity": {**identity(), **(own if isinstance(own, Mapping) else {})}}


def _version(name: str) -> str:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return str(getattr(sys.modules[name], "__version__", ""))


def _git_folder() -> str:
    """Return the folder of the script that runs, else the working folder: the code's, not the data's."""
    script = getattr(sys.modules.get("__main__"), "__file__", None)
    return os.path.dirname(os.path.abspath(script)) if script else os.getcwd()


@lru_cache(8)
def git_state(folder: str) -> dict[str, Any]:
    """Return `git_commit`, `git_branch` and `git_dirty` (tracked files differ) of the code in a folder.

    Texts are empty and `git_dirty` None without a repository, or where git does not answer in two seconds.
    No file's content and no remote's address is read. A process asks once.
    """
    head = _git(folder, "rev-parse", "HEAD", "--abbrev-ref", "HEAD")
    lines = head.stdout.split() if head is not None and head.returncode == 0 else []
    commit, branch = lines if len(lines) == 2 else ("", "")
    changes = _git(folder, "diff-index", "--quiet", "HEAD", "--") if commit else None
    dirty = None if changes is None or changes.returncode not in (0, 1) else changes.returncode == 1
    return {"git_commit": commit, "git_branch": branch, "git_dirty": dirty}


def _git(folder: str, *arguments: str) -> subprocess.CompletedProcess[str] | None:
    command = ["git", "--no-optional-locks", "-C", folder, *arguments]
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=2, check=False)
    except (OSError, subprocess.SubprocessError):
        return None


def _accelerators(torch: Any) -> str:
    """Return the GPUs that torch has already begun to use."""
    cuda = getattr(torch, "cuda", None)
    if cuda is None or not cuda.is_initialized():
        return ""
    return f"{cuda.device_count()} x {cuda.get_device_name(0)}"
