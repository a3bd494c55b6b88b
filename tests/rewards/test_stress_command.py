"""`trimtab stress reward` as a user types it."""

from __future__ import annotations

import json
from pathlib import Path

from typer.testing import CliRunner

from tests.rewards import reward_functions
from trimtab.cli import app

FILE = reward_functions.__file__


def run(*arguments: str) -> tuple[int, str, BaseException | None]:
    result = CliRunner().invoke(app, ["stress", "reward", *arguments])
    return result.exit_code, result.stdout, result.exception


def test_a_hackable_reward_exits_with_1_and_writes_a_page(tmp_path: Path) -> None:
    page = tmp_path / "reward.html"
    code, text, _ = run(f"{FILE}:contains", "--html", str(page), "--json")
    result = json.loads(text)
    assert (code, result["exit_code"], result["verdict"]) == (1, 1, "hackable")
    assert "A list of candidates is paid" in page.read_text(encoding="utf-8")


def test_a_sound_reward_exits_with_0_against_its_hackable_revision() -> None:
    code, text, _ = run(f"{FILE}:exact", "--against", f"{FILE}:contains")
    assert code == 0
    assert "fixed: answer_list, gain 100 % -> –" in text


def test_a_bad_target_raises_one_line() -> None:
    for target in ("nowhere:f", f"{FILE}:raises", "no_colon"):
        _, _, error = run(target)
        assert type(error).__name__ == "RewardError"
        assert "\n" not in str(error)
