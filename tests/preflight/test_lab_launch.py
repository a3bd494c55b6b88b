"""The launch check of the lab, as docs/how-to/preflight.md types it: go, and no-go with each planted fault named."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest

pytest.importorskip("trl", reason="needs the trl extra")

from tests.support import cli

EXAMPLE = Path(__file__).parents[2] / "examples" / "preflight"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return Path(shutil.copytree(EXAMPLE, tmp_path / "lab", ignore=shutil.ignore_patterns("preflight-runs")))


def test_the_lab_is_a_go(folder: Path) -> None:
    done = cli("preflight", folder / "preflight.yaml", "--json", "--html", folder / "page.html")
    result = json.loads(done.stdout)
    assert {row["section"]: row["state"] for row in result["checks"]} == dict.fromkeys(
        ("tools", "reward", "parity", "dry_run"), "go"
    ), done.stdout[:3000]
    assert (done.returncode, result["verdict"]) == (0, "go")
    items = {row["name"]: row["text"] for row in result["checks"][3]["result"]["items"]}
    assert items["steps"] == "6 steps flushed"
    assert items["readings"].startswith("observed: drift")
    assert "2,000 steps take about" in items["time"]
    assert {row["tool"] for row in result["checks"][3]["result"]["diagnosis"]["tools"]} == {
        "price",
        "stock",
        "owner",
    }
    page = (folder / "page.html").read_text(encoding="utf-8")
    assert "launch v-healthy" in page
    anchors = re.findall(r'id="([\w-]+)"', page)
    assert len(set(anchors)) == len(anchors)
    own = {"payload", "checks", "h-checks", "facts", "h-facts"}
    assert {re.match(r"(?:h-)?(c\d)-", one)[1] for one in anchors if one not in own} == {
        "c1",
        "c2",
        "c3",
        "c4",
    }  # type: ignore[index]


def test_each_planted_fault_is_named(folder: Path) -> None:
    done = cli("preflight", folder / "faulty.yaml", "--json")
    result = json.loads(done.stdout)
    evidence = {row["section"]: row["evidence"] for row in result["checks"]}
    assert (done.returncode, result["headline"]) == (
        1,
        "4 of 4 checks no-go: tools, reward, parity, dry_run.",
    )
    assert "Failed calls: stock " in evidence["tools"]
    assert "A list of candidates is paid" in evidence["reward"]
    assert "answer_list new" in evidence["reward"]
    assert "tools.stock: there -> missing" in evidence["parity"]
    assert evidence["dry_run"].startswith("BLIND: drift is never observed")
