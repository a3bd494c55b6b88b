"""What a run is: command, code, host, versions and hardware, for the header of its folder. No environment
variables."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import re
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from typing import Any

_PACKAGES = ("torch", "transformers", "trl", "verl", "vllm", "accelerate", "peft", "numpy")
_SECRET_NAME = re.compile(
    r"(token|secret|passw|credential|auth|api.?key|access.?key|private.?key|_key$|^key$)", re.IGNORECASE
)
_SECRET_VALUE = re.compile(
    r"^(hf_|sk-|ghp_|gho_|github_pat_|xox[abp]-|AKIA|glpat-|eyJ)|^(?=.*\d)(?=.*[A-Za-z])[A-Za-z0-9+_=-]{32,}$|://[^/@\s]+@"
)
_MASK = "***"


def identity() -> dict[str, Any]:
    """Return what this process is; nothing of it is looked up on a network, and no module is imported for
    it."""
    torch = sys.modules.get("torch")
    return {
        "command": " ".join(masked(list(getattr(sys, "orig_argv", sys.argv))[:64]))[:2000],
        "git_commit": _git_commit(),
        "host": socket.gethostname(),
        "python": platform.python_version(),
        "platform": platform.platform(),
        "versions": {name: _version(name) for name in _PACKAGES if name in sys.modules},
        "cpus": os.cpu_count(),
        "accelerators": _accelerators(torch),
    }


def masked(arguments: Sequence[str]) -> list[str]:
    """Return command-line arguments with values that look like a token or a key replaced.

    >>> masked(["train.py", "--api-key", "abc", "--hf_token=x", "--lr", "1e-6", "sk-123"])
    ['train.py', '--api-key', '***', '--hf_token=***', '--lr', '1e-6', '***']
    """
    shown: list[str] = []
    secret_next = False
    for text in map(str, arguments):
        name, equals, value = text.partition("=")
        named = bool(_SECRET_NAME.search(name.lstrip("-")))
        if secret_next and not text.startswith("--"):
            shown.append(_MASK)
        elif equals and (named or _SECRET_VALUE.search(value)):
            shown.append(f"{name}={_MASK}")
        else:
            shown.append(_MASK if _SECRET_VALUE.search(text) else text)
        secret_next = named and not equals and text.startswith("-")
    return shown


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


def _git_commit() -> str:
    """Return the commit that is checked out where the process runs; empty where there is none."""
    script = getattr(sys.modules.get("__main__"), "__file__", None)
    folder = os.path.dirname(os.path.abspath(script)) if script else os.getcwd()
    try:
        command = ["git", "-C", folder, "rev-parse", "HEAD"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=2, check=False)
    except (OSError, subprocess.SubprocessError):
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""


def _accelerators(torch: Any) -> str:
    """Return the GPUs that torch has already begun to use."""
    cuda = getattr(torch, "cuda", None)
    if cuda is None or not cuda.is_initialized():
        return ""
    return f"{cuda.device_count()} x {cuda.get_device_name(0)}"
