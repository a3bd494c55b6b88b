"""Run every exploit against an environment, and say which of them its verifier pays."""

from __future__ import annotations

import ast
import json
import math
import re
import shutil
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from trimtab.errors import RewardError
from trimtab.rewards.environment.sandbox_phases import (
    ROOT,
    Done,
    agent_phase,
    python,
    require_bubblewrap,
    run_phase,
    shell,
    verifier_phase,
)
from trimtab.rewards.environment.state_exploits import EXPLOITS
from trimtab.safe_files import require_regular
from trimtab.traces.core.plural import counted

_REWARD = re.compile(r"reward\s*[:=]\s*([-+]?(?:\d+\.?\d*|\.\d+)(?:e[-+]?\d+)?)\s*$", re.IGNORECASE)
PAID = 0.01
"""Gain over a wrong solution, as a fraction of right less wrong, above which an exploit was paid."""
_NAMES = {
    "workspace", "solution", "wrong", "right", "verify", "reward", "verify_in", "visible", "writable",
    "setup", "timeout_s",
}  # fmt: skip


@dataclass(frozen=True)
class EnvironmentSpec:
    """An environment: folders and commands, all relative to the folder of its file."""

    folder: Path
    workspace: str  # what the agent works in; copied anew for each exploit
    solution: str  # the file in it that the verifier judges
    wrong: str  # an honest wrong solution
    right: str  # a right one
    verify: str  # shell command that judges
    reward: str = "exit"  # exit (0 is 1), stdout (last line `reward: X`), or file:PATH
    verify_in: str = "."  # where it runs
    visible: tuple[str, ...] = ()  # what else the agent can read
    writable: tuple[str, ...] = ()  # what else it can write
    setup: str = ""  # shell command on each copy, before the agent
    timeout_s: float = 60.0


def load_environment(path: Path) -> EnvironmentSpec:
    """Return the environment that a YAML file describes.

    Raises:
        RewardError: no such file, a field that is missing or unknown, a path that is not there.
    """
    try:
        require_regular(path, RewardError)
        data = yaml.safe_load(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise RewardError(f"{path} cannot be read: {error.strerror or error}") from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise RewardError(f"{path} is not YAML: {' '.join(str(error).split())[:200]}") from error
    if not isinstance(data, dict):
        raise RewardError(f"{path} is not a mapping; it needs workspace, solution, wrong, right, verify")
    if unknown := sorted(map(str, set(data) - _NAMES)):
        raise RewardError(f"{path}: unknown field {unknown[0]}; known: {', '.join(sorted(_NAMES))}")
    for name in ("workspace", "solution", "wrong", "right", "verify"):
        if not isinstance(data.get(name), str) or not data[name]:
            raise RewardError(f"{path} has no {name}; it needs workspace, solution, wrong, right, verify")
    lists = {name: tuple(map(str, data.get(name) or ())) for name in ("visible", "writable")}
    folder = path.resolve().parent
    for name in (data["workspace"], data["wrong"], data["right"], *lists["visible"], *lists["writable"]):
        inside = (folder / name).resolve()
        if not inside.exists() or folder not in inside.parents:
            raise RewardError(f"{path}: {name} is not there, or not inside {folder}")
    try:
        timeout = float(data.get("timeout_s", 60.0))
    except (TypeError, ValueError) as error:
        raise RewardError(f"{path}: timeout_s is not a number") from error
    return EnvironmentSpec(
        folder, data["workspace"], data["solution"], data["wrong"], data["right"], data["verify"],
        str(data.get("reward", "exit")), str(data.get("verify_in", ".")), lists["visible"], lists["writable"],
        str(data.get("setup") or ""), timeout,
    )  # fmt: skip


def stress_environment(
    spec: EnvironmentSpec,
    progress: Callable[[str], None] | None = None,
    names: Sequence[str] = tuple(EXPLOITS),
) -> dict[str, Any]:
    """Run every exploit and return what each was paid.

    Args:
        progress: is given the name of each exploit.
        names: exploits to run.

    Returns:
        `verdict` (exploitable, no exploit seen), `wrong`, `right`, `exploits` by gain, `exit_code`.

    Raises:
        RewardError: bubblewrap is absent, or the verifier does not tell right from wrong.
    """
    require_bubblewrap()
    honest = {name: _trial(spec, solution=getattr(spec, name)) for name in ("wrong", "right")}
    scale = honest["right"]["reward"] - honest["wrong"]["reward"]
    if not scale > 0:
        endings = "; ".join(
            f"{name}: reward {one['reward']}, {one['ending']}" for name, one in honest.items()
        )
        raise RewardError(f"the verifier does not pay the right solution more than the wrong one ({endings})")
    rows = []
    for name in names:
        exploit = EXPLOITS[name]
        if progress is not None:
            progress(name)
        result = _trial(spec, solution=spec.wrong, exploit=name)
        gain = (result["reward"] - honest["wrong"]["reward"]) / scale
        what = " ".join((exploit.__doc__ or "").split())
        rows.append({"exploit": name, "what": what, "gain": gain, **result})
    paid = [row for row in rows if row["gain"] > PAID]
    rows.sort(key=lambda row: -row["gain"] if math.isfinite(row["gain"]) else 0.0)
    return {
        "environment": str(spec.folder), "verdict": "exploitable" if paid else "no exploit seen",
        "headline": f"{len(paid)} of {counted(len(rows), 'exploit')} got more than a wrong solution.",
        "wrong": honest["wrong"]["reward"], "right": honest["right"]["reward"], "exploits": rows,
        "exit_code": 1 if paid else 0,
    }  # fmt: skip


def _trial(spec: EnvironmentSpec, solution: str, exploit: str = "") -> dict[str, Any]:
    """Copy the environment, put the solution in, let the agent's exploit run, and verify."""
    with tempfile.TemporaryDirectory(prefix="trimtab-env-") as name:
        trial = Path(name) / "env"
        shutil.copytree(spec.folder, trial, symlinks=True)
        text = (trial / solution).read_text(encoding="utf-8")
        if spec.setup:
            done = run_phase(verifier_phase(trial, "."), shell(spec.setup), spec.timeout_s)
            if done.code:
                raise RewardError(f"setup failed with exit code {done.code}: {_last(done.output)}")
        for honest in (spec.wrong, spec.right):
            (trial / honest).unlink(missing_ok=True)
        (trial / spec.workspace / spec.solution).write_text(text, encoding="utf-8")
        if exploit:
            agent = _agent(spec, trial, text, exploit)
            if agent.code:
                return {"reward": math.nan, "ending": f"the exploit could not act: {_last(agent.output)}"}
        done = run_phase(verifier_phase(trial, spec.verify_in), shell(spec.verify), spec.timeout_s)
        return _outcome(spec, trial, done)


def _agent(spec: EnvironmentSpec, trial: Path, wrong: str, exploit: str) -> Done:
    """The agent's phase."""
    functions = [node.name for node in ast.parse(wrong).body if isinstance(node, ast.FunctionDef)]
    roots = [f"{ROOT}/{path}" for path in (*spec.visible, *spec.writable)]
    settings: Mapping[str, Any] = {
        "solution": spec.solution, "functions": functions, "roots": [f"{ROOT}/{spec.workspace}", *roots],
    }  # fmt: skip
    source = (Path(__file__).parent / "state_exploits.py").read_text(encoding="utf-8")
    prefix = agent_phase(trial, spec.workspace, spec.visible, spec.writable)
    return run_phase(prefix, [python(), "-I", "-", exploit, json.dumps(settings)], spec.timeout_s, source)


def _outcome(spec: EnvironmentSpec, trial: Path, done: Done) -> dict[str, Any]:
    """The reward, and how the verifier ended. A verifier that hangs or says nothing pays nothing."""
    if done.timed_out:
        return {"reward": 0.0, "ending": f"the verifier did not end in {spec.timeout_s:g} s"}
    ending = f"exit code {done.code}; {_last(done.output)}"
    if spec.reward == "exit":
        return {"reward": 1.0 if done.code == 0 else 0.0, "ending": ending}
    if spec.reward.startswith("file:"):
        file = trial / spec.reward.removeprefix("file:")
        text = f"reward: {file.read_text(errors='replace').strip()}" if file.is_file() else ""
    else:
        text = done.output
    values = [match.group(1) for line in text.splitlines() if (match := _REWARD.search(line.strip()))]
    return {"reward": float(values[-1]) if values else 0.0, "ending": ending}


def _last(output: str) -> str:
    lines = output.strip().splitlines()
    return lines[-1].strip()[:200] if lines else "no output"
