"""Realistic report payloads: two arms of one agent RL run, one whose tail grows after tool calls, one held down.

python -m tests.report.mock_payload OUT_DIR     writes pages to look at
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from tests.report.mock_run import run

HOSTILE = "</script><script>document.title='PWNED'</script><img src=x onerror=\"document.title='PWNED'\">\x1b[31m\u202e\x00&'\""


def payload(
    *runs: dict[str, Any], title: str = "search-agent-7b, week 3: baseline against post-tool KL"
) -> dict[str, Any]:
    return {
        "title": title,
        "generated": "2026-07-14 09:12 UTC",
        "trimtab_version": "0.1.0",
        "runs": list(runs),
    }


def two_arms(steps: int = 200) -> dict[str, Any]:
    return payload(run("grpo-baseline", steps, True, 1), run("grpo-post-tool-kl", steps, False, 2))


def empty_run(name: str = "just-started") -> dict[str, Any]:
    judged = [{"slice": "text", "status": "not judged yet", "n_tokens": 812, "n_trajectories": 9}]
    lists = {
        key: []
        for key in (
            "facts",
            "not_observed",
            "notes",
            "alarms",
            "tail",
            "cdf",
            "alarmed",
            "weights",
            "aggregates",
            "support",
            "tools",
        )
    }
    counts = {
        "first_step": 0,
        "last_step": 0,
        "num_steps": 1,
        "num_tokens": 812,
        "num_trajectories": 9,
        "ranks": 1,
        "sessions": 1,
    }
    return {
        "name": name,
        "path": "runs/x",
        "verdict": "not judged yet",
        "verdict_reason": "",
        **counts,
        **lists,
        "judged": judged,
    }


def with_holes(steps: int = 80) -> dict[str, Any]:
    arm = run("nan-holes", steps, True, 3)
    for series in arm["tail"] + arm["aggregates"]:
        series["value"][10:13] = [float("nan"), float("inf"), float("-inf")]
        series["value"][15] = float("nan")
        series["value"][17] = float("nan")
    arm["aggregates"][1]["value"] = [float("nan")] * len(arm["aggregates"][1]["step"])
    arm["notes"] = ["measure 'k-hat' failed 3 times: LinAlgError; its readings are missing from step 40 on"]
    return payload(arm)


def hostile(steps: int = 60) -> dict[str, Any]:
    """Every string of the payload replaced by an attack, except the few words of the schema itself."""
    words = {"verdict", "severity", "quantity", "window", "status"}

    def spoil(value: Any, key: str = "") -> Any:
        if isinstance(value, dict):
            return {name: spoil(item, name) for name, item in value.items()}
        if isinstance(value, list):
            return [spoil(item, key) for item in value]
        return (
            f"{value} {HOSTILE}"
            if isinstance(value, str) and key not in words and value not in ("text", "post_tool")
            else value
        )

    arm = run("hostile", steps, True, 4)
    arm["notes"] = ["note"]
    spoiled: dict[str, Any] = spoil(payload(arm, {**arm, "name": "{{payload}}"}))
    spoiled["runs"][1]["alarmed"][0]["quantity"] += HOSTILE
    spoiled["runs"][0]["tail"].append({**arm["tail"][0], "slice": "__proto__"})
    return spoiled


if __name__ == "__main__":
    from trimtab.report.html.run_page import write_html

    out = Path(sys.argv[1])
    baseline = run("grpo-baseline", 200, True, 1)
    pages = {"two": two_arms(), "one": payload(baseline, title="search-agent-7b, week 3"), "holes": with_holes(),
             "empty": payload(empty_run()), "mixed": payload(baseline, empty_run(), run("short", 90, False, 5)),
             "hostile": hostile(), "none": payload()}  # fmt: skip
    for name, data in pages.items():
        print(write_html(data, out / f"{name}.html"), (out / f"{name}.html").stat().st_size)
