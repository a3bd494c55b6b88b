"""Children of a Python that has torch and TRL already: a fork in place of nine seconds of imports.

They are processes of their own, with their own pid, streams, environment and exit status, that can be interrupted and killed.
"""

from __future__ import annotations

import atexit
import json
import os
import select
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]


@cache
def _server(owner: int) -> socket.socket:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    environment = {
        **os.environ,
        "OMP_NUM_THREADS": "1",
        "HF_HUB_OFFLINE": "1",
        "TOKENIZERS_PARALLELISM": "false",
    }
    environment["PYTHONPATH"] = os.pathsep.join((str(ROOT), str(ROOT / "src")))
    child = subprocess.Popen(
        [sys.executable, "-m", "tests.warm_server", str(theirs.fileno())],
        pass_fds=[theirs.fileno()], env=environment, cwd=ROOT, stdin=subprocess.DEVNULL,
    )  # fmt: skip
    theirs.close()
    atexit.register(child.wait)
    atexit.register(ours.close)
    return ours


class WarmProcess(subprocess.Popen[str]):
    """`subprocess.Popen` of `[sys.executable, SCRIPT or -c CODE or -m MODULE, ...]`, forked by the server."""

    def _execute_child(self, args: Sequence[str], *rest: Any) -> None:
        (_, _, _, _, cwd, env, _, _, _, p2cread, p2cwrite, c2pread, c2pwrite, errread, errwrite, *_) = rest
        del p2cwrite, c2pread, errread
        assert args[0] == sys.executable
        request = {
            "arguments": args[1:],
            "env": dict(env or os.environ),
            "cwd": os.fspath(cwd or os.getcwd()),
        }
        answer, theirs = socket.socketpair()
        null = os.open(os.devnull, os.O_RDWR)
        wanted = (p2cread, c2pwrite, errwrite)
        streams = [null if one == -1 and i == 0 else i if one == -1 else one for i, one in enumerate(wanted)]
        socket.send_fds(_server(os.getpid()), [json.dumps(request).encode()], [theirs.fileno(), *streams])
        theirs.close()
        os.close(null)
        for one in {*wanted} - {-1}:
            os.close(one)
        self._answer = answer.makefile("rb", buffering=0)
        answer.close()
        self.pid = int(self._answer.readline())
        self._child_created = True

    def _try_wait(self, wait_flags: int) -> tuple[int, int]:
        if wait_flags & os.WNOHANG and not select.select([self._answer], [], [], 0)[0]:
            return 0, 0
        line = self._answer.readline()
        return self.pid, int(line) if line else 9  # the server itself was killed, and its children with it

    def _internal_poll(self, _deadstate: int | None = None, **_: Any) -> int | None:
        if self.returncode is None and self._waitpid_lock.acquire(False):
            try:
                if self.returncode is None:
                    pid, status = self._try_wait(os.WNOHANG)
                    if pid == self.pid:
                        self._handle_exitstatus(status)
            finally:
                self._waitpid_lock.release()
        return self.returncode


def ranks_finished(
    arguments: Sequence[str], ranks: int, env: Mapping[str, str], limit: float = 200
) -> subprocess.CompletedProcess[str]:
    """Run `ranks` processes to their end as torchrun would, with its variables; all end when one fails."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    common = {
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
        "WORLD_SIZE": str(ranks),
        "LOCAL_WORLD_SIZE": str(ranks),
    }
    children = [
        WarmProcess(
            [sys.executable, *arguments], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, cwd=ROOT,
            env={**env, **common, "RANK": str(rank), "LOCAL_RANK": str(rank)},
        )
        for rank in range(ranks)
    ]  # fmt: skip
    end = time.monotonic() + limit
    while any(child.poll() is None for child in children):
        if time.monotonic() > end or any(child.poll() for child in children):
            time.sleep(1.0)  # the others may still say why
            for child in children:
                child.kill()
        time.sleep(0.05)
    errors = "".join(child.communicate()[1] for child in children)
    codes = [child.returncode for child in children]
    return subprocess.CompletedProcess(arguments, next((code for code in codes if code), 0), "", errors)
