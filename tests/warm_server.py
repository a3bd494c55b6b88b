"""A Python that has imported torch and TRL once, and forks for each script it is sent; `tests/warm.py` is its client.

`python -m tests.warm_server NUMBER`: the number of an open Unix socket. The import costs nine seconds of one core, a fork 20 ms.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import runpy
import signal
import socket
import sys
from contextlib import suppress
from typing import Any

PRELOADED = (
    "torch", "torch.distributed.tensor", "trl.trainer.grpo_trainer", "tests.adapters.tiny_trl", "trimtab.adapters.trl",
)  # fmt: skip


def main(number: int) -> None:
    """Serve until the client is gone; only a forked child comes back from here, to run what it was sent."""
    for name in PRELOADED:
        with suppress(ImportError):
            importlib.import_module(name)
    gc.collect()
    gc.freeze()  # what is shared stays shared
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for the forks that wait for the children
    server = socket.socket(fileno=number)
    while True:
        data, files, _, _ = socket.recv_fds(server, 1 << 20, 4)
        if not data:
            os._exit(0)
        if os.fork() == 0:
            server.close()
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            answer, *streams = files
            pid = os.fork()
            if pid == 0:
                os.close(answer)
                become(json.loads(data), streams)
                return
            for stream in streams:
                os.close(stream)
            os.write(answer, f"{pid}\n".encode())
            os.write(answer, f"{os.waitpid(pid, 0)[1]}\n".encode())
            os._exit(0)
        for file in files:
            os.close(file)


def become(request: dict[str, Any], streams: list[int]) -> None:
    """Make this process the one that was asked for: streams, environment, folder and arguments."""
    for wanted, stream in enumerate(streams):
        os.dup2(stream, wanted)
        os.close(stream)
    sys.stdin, sys.stdout, sys.stderr = open(0), open(1, "w"), open(2, "w", buffering=1)  # noqa: SIM115
    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.environ.clear()
    os.environ.update(request["env"])
    os.chdir(request["cwd"])
    sys.path[:0] = [one for one in request["env"].get("PYTHONPATH", "").split(os.pathsep) if one]
    PENDING.update(request)


PENDING: dict[str, Any] = {}
"""What a child is to run; empty in the server."""


if __name__ == "__main__":
    main(int(sys.argv[1]))
    how, *rest = PENDING["arguments"]
    if how == "-m":
        sys.argv = rest
        runpy.run_module(rest[0], run_name="__main__", alter_sys=True)
    elif how == "-c":
        sys.argv = ["-c", *rest[1:]]
        exec(compile(rest[0], "<string>", "exec"), {"__name__": "__main__"})
    else:
        sys.argv = [how, *rest]
        sys.path.insert(0, os.path.dirname(os.path.abspath(how)))
        runpy.run_path(how, run_name="__main__")
