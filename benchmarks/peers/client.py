"""How does the bench ask the peers? A process of the peers' own Python a peer, JSON lines in and out.

    python = peers_python()                 # None, after one line that says so, where there is no such environment
    answers = ask(python, "rldoctor", logs)

The Python is the argument, else TRIMTAB_PEERS_PYTHON, else `out/peers-venv/bin/python`, which `benchmarks/peers/setup.sh` makes.
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

__all__ = ["ask", "generated", "peers_python", "scenarios", "versions"]

ROOT = Path(__file__).resolve().parents[2]
_VERSIONS = "import json,importlib.metadata as m;print(json.dumps({p:m.version(p) for p in ('rldoctor','rlprobe','rlwatch')}))"


def peers_python(given: str | None = None) -> Path | None:
    """The peers' Python, or None after one clear line on stderr where it is not there."""
    path = Path(given or os.environ.get("TRIMTAB_PEERS_PYTHON") or ROOT / "out/peers-venv/bin/python")
    if path.is_file() and os.access(path, os.X_OK):
        return path
    print(
        f"no peers: {path} is missing; `bash benchmarks/peers/setup.sh` makes it. Going on without them.",
        file=sys.stderr,
    )
    return None


def _environment() -> dict[str, str]:
    """This environment without what would lead the peers' Python to this one's packages."""
    kept = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "PYTHONHOME")}
    return kept | {"OMP_NUM_THREADS": "1"}


def _run(python: Path, arguments: list[str], text: str = "", timeout_s: float | None = None) -> str:
    """Standard output of the peers' Python. Raises RuntimeError with the end of its stderr where it fails."""
    done = subprocess.run(
        [str(python), *arguments],
        input=text, capture_output=True, text=True, env=_environment(), timeout=timeout_s, check=False,
    )  # fmt: skip
    if done.returncode:
        raise RuntimeError(f"{' '.join(arguments[:2])} exited {done.returncode}: {done.stderr[-2000:]}")
    return done.stdout


def versions(python: Path) -> dict[str, str]:
    """The installed release of each peer."""
    return dict(json.loads(_run(python, ["-c", _VERSIONS])))


def ask(
    python: Path, peer: str, logs: Iterable[Mapping[str, Any]], timeout_s: float | None = None
) -> list[dict[str, Any]]:
    """One answer a log, in order, as `run_peer.py` describes them. Only what a peer may see of a log is sent to it."""
    seen = ("id", "steps", "series", "prefixes", "config")
    lines = [json.dumps({name: log[name] for name in seen if log.get(name) is not None}) for log in logs]
    script = str(ROOT / "benchmarks/peers/run_peer.py")
    return [
        json.loads(line) for line in _run(python, [script, peer], "\n".join(lines), timeout_s).splitlines()
    ]


def scenarios(python: Path, cache: Path | None = None, seeds: int = 3) -> list[dict[str, Any]]:
    """The peers' own scenarios in our names; generated once for a table of names, then read from the ignored `out/bench`."""
    if cache is None:
        here = Path(__file__).parent
        texts = b"".join(
            (here / name).read_bytes() for name in ("scenarios.py", "translate.py", "families.py")
        )
        cache = ROOT / f"out/bench/peer_scenarios.{hashlib.sha256(texts).hexdigest()[:10]}.{seeds}.jsonl"
    if not cache.is_file():
        _run(
            python, [str(ROOT / "benchmarks/peers/scenarios.py"), str(cache.resolve()), "--seeds", str(seeds)]
        )
    return [json.loads(line) for line in cache.read_text(encoding="utf-8").splitlines()]


def generated(python: Path, path: Path, seeds: range, length: int, strength: float) -> list[dict[str, Any]]:
    """The peers' scenarios of a length and strength for these seeds, written to `path` and read again."""
    options = [
        "--first",
        str(seeds[0]),
        "--seeds",
        str(len(seeds)),
        "--steps",
        str(length),
        "--strength",
        str(strength),
    ]
    _run(python, [str(ROOT / "benchmarks/peers/scenarios.py"), str(path), *options])
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
