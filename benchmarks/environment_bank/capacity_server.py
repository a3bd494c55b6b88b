"""HTTP server of known capacity and latency, its own process on loopback, with hardly any work for the processor.

    python benchmarks/environment_bank/capacity_server.py PORT '{"capacity": 12, "median_s": 0.1}'

It prints `ready PORT` once it listens. Every request, whatever its path and method, is one call: it waits for one of `capacity` workers,
and the worker sleeps. So the server answers at most `capacity / mean service time` calls a second, and a lone caller waits one service time.
"""

from __future__ import annotations

import asyncio
import json
import math
import os
import random
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path

_READY_S = 20.0
_TICK_S = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class Service:
    """What the server does. Service times are lognormal: `median_s * exp(sigma * normal)`."""

    capacity: int = 1_000_000  # workers
    median_s: float = 0.1
    sigma: float = 0.0  # 0: every service takes median_s
    seed: int = 0
    refuse_above: int = 1_000_000_000  # calls inside beyond which another is refused at once
    refuse_status: int = 503
    retry_after: str = ""  # header of a refusal
    error_above: int = 1_000_000_000  # calls inside beyond which a call is served, and answered 500
    slow_down: float = 0.0  # of a service, a call inside beyond `capacity`

    @property
    def mean_s(self) -> float:
        """Mean service time in seconds."""
        return self.median_s * math.exp(self.sigma**2 / 2)

    @property
    def rate(self) -> float:
        """Most calls a second."""
        return self.capacity / self.mean_s


class _Server:
    def __init__(self, service: Service) -> None:
        self.service, self.random = service, random.Random(service.seed)
        self.workers, self.inside = asyncio.Semaphore(service.capacity), 0

    async def answer(self) -> tuple[int, str]:
        """Serve one call: status, and one more header."""
        service = self.service
        if self.inside >= service.refuse_above:
            header = f"retry-after: {service.retry_after}\r\n" if service.retry_after else ""
            return service.refuse_status, header
        failing = self.inside >= service.error_above
        self.inside += 1
        try:
            async with self.workers:
                excess = max(self.inside - service.capacity, 0)
                seconds = service.median_s * self.random.lognormvariate(0.0, service.sigma)
                await asyncio.sleep(seconds * (1 + service.slow_down * excess))
        finally:
            self.inside -= 1
        return (500 if failing else 200), ""

    async def connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer the requests of one connection, one after the other."""
        with suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).lower()
                _, found, rest = head.partition(b"\r\ncontent-length:")
                if found:
                    await reader.readexactly(int(rest.partition(b"\r\n")[0]))
                status, header = await self.answer()
                writer.write(
                    f"HTTP/1.1 {status} X\r\ncontent-type: text/plain\r\n{header}content-length: 5\r\n\r\ndone\n".encode()
                )
                await writer.drain()
        writer.close()


async def _main(port: int, service: Service) -> None:
    server = await asyncio.start_server(_Server(service).connection, "127.0.0.1", port, backlog=4096)
    print("ready", server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


class ServerProcess:
    """The server as a child process, with its URL and the seconds of CPU it used."""

    def __init__(self, service: Service, port: int = 0) -> None:
        command = [sys.executable, str(Path(__file__).resolve()), str(port), json.dumps(asdict(service))]
        self.child = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert self.child.stdout is not None
        words = self.child.stdout.readline().split()
        if words[:1] != ["ready"]:
            self.end()
            raise RuntimeError(f"the server of {service} did not start")
        self.port = int(words[1])
        self.url = f"http://127.0.0.1:{self.port}/"

    def cpu_s(self) -> float:
        """Seconds of CPU since its start."""
        words = Path(f"/proc/{self.child.pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
        return (int(words[11]) + int(words[12])) / _TICK_S

    def end(self) -> None:
        """Kill it, as an outage does."""
        self.child.kill()
        self.child.wait(_READY_S)
        assert self.child.stdout is not None
        self.child.stdout.close()


@contextmanager
def running_server(service: Service) -> Iterator[ServerProcess]:
    """A server that does not outlive the block."""
    server = ServerProcess(service)
    try:
        yield server
    finally:
        server.end()


if __name__ == "__main__":
    with suppress(KeyboardInterrupt):
        asyncio.run(_main(int(sys.argv[1]), Service(**json.loads(sys.argv[2]))))
