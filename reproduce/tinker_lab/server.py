"""SkyRL's Tinker API server (JAX, CPU) as a child process that ends with its block."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

__all__ = ["serve"]

START_S = 180
"""Seconds the server may take until it answers; some 20 on one core."""

_UV = """#!/usr/bin/env bash
# Stands in for `uv run ... -m MODULE ARGS`: SkyRL starts its engine so. This environment's python runs the module.
while [ $# -gt 0 ] && [ "$1" != "-m" ]; do shift; done
python "$@"
"""
_BACKEND = '{"max_lora_adapters": 12, "max_lora_rank": 8, "train_micro_batch_size": 16, "sample_max_num_sequences": 16}'
"""Sizes are fixed: each new shape is compiled, 20 to 45 s of one core."""


@contextmanager
def serve(base_model: str, folder: Path) -> Iterator[str]:
    """Yield the address of a server of `base_model`; its files and log are in `folder`, its group ends with the block."""
    folder.mkdir(parents=True, exist_ok=True)
    port = _free_port()
    command = [
        "uv", "run", "--", "python", "-m", "skyrl.tinker.api", "--base-model", base_model, "--backend", "jax",
        "--backend-config", _BACKEND, "--host", "127.0.0.1", "--port", str(port),
        "--database-url", f"sqlite:///{folder / 'tinker.db'}", "--checkpoints-base", str(folder / "checkpoints"),
    ]  # fmt: skip
    with (folder / "server.log").open("wb") as log:
        child = subprocess.Popen(
            _bounded(command),
            stdout=log,
            stderr=subprocess.STDOUT,
            env=_environment(folder),
            start_new_session=True,
        )
        try:
            _wait(child, f"http://127.0.0.1:{port}/api/v1/healthz", folder / "server.log")
            yield f"http://127.0.0.1:{port}"
        finally:
            _end(child)


def _environment(folder: Path) -> dict[str, str]:
    shims = folder / "bin"
    shims.mkdir(exist_ok=True)
    (shims / "uv").write_text(_UV)
    (shims / "uv").chmod(0o755)
    return {
        **os.environ,
        "PATH": os.pathsep.join((str(shims), str(Path(sys.executable).parent), os.environ["PATH"])),
        "XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false", "JAX_PLATFORMS": "cpu", "OMP_NUM_THREADS": "1",
        "HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false",
    }  # fmt: skip


def _bounded(command: list[str]) -> list[str]:
    """Return the command on one core, at a lower priority."""
    core = max(os.sched_getaffinity(0))
    return ["taskset", "-c", str(core), "nice", "-n", "5", *command]


def _free_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return int(taken.getsockname()[1])


def _wait(child: subprocess.Popen[bytes], url: str, log: Path) -> None:
    deadline = time.monotonic() + START_S
    while child.poll() is None and time.monotonic() < deadline:
        with suppress(urllib.error.URLError, OSError), urllib.request.urlopen(url, timeout=5):
            return
        time.sleep(0.5)
    raise RuntimeError(f"SkyRL's server did not answer within {START_S} s, or ended; its log is {log}")


def _end(child: subprocess.Popen[bytes]) -> None:
    """End the server and its engine: they are a session of their own."""
    for sign in (signal.SIGTERM, signal.SIGKILL):
        with suppress(ProcessLookupError):
            os.killpg(child.pid, sign)
        with suppress(subprocess.TimeoutExpired):
            child.wait(timeout=15)
