"""The example of controls for a loop of one's own: it trains under a guard, and its state comes back bit for bit."""

from __future__ import annotations

import runpy
import subprocess
import sys
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

from tests.support import finished  # noqa: E402
from trimtab.report.run_view import load_view  # noqa: E402

EXAMPLE = Path(__file__).parents[2] / "examples" / "guarded_loop.py"


def test_the_example_trains_under_a_guard(tmp_path) -> None:
    done: subprocess.CompletedProcess[str] = finished(
        [sys.executable, str(EXAMPLE), "--steps", "3", "--folder", str(tmp_path / "run")], cwd=tmp_path
    )
    assert done.returncode == 0, done.stderr[-2000:]
    view = load_view(tmp_path / "run")
    assert [row["step"] for row in view.steps] == [0, 1, 2]
    assert (view.errors, view.actions) == ([], [])
    assert view.reader.header["config"]["guard"]["observe"] is False


def test_controls_of_a_loop_are_short_and_restore_bit_for_bit(tmp_path, monkeypatch) -> None:
    monkeypatch.syspath_prepend(str(EXAMPLE.parent))
    controls_of = runpy.run_path(str(EXAMPLE))["LoopControls"]
    text = EXAMPLE.read_text()
    assert len(text[text.index("class LoopControls") : text.index("def main")].splitlines()) <= 40
    torch.manual_seed(0)
    net = torch.nn.Linear(3, 1)
    optimizer = torch.optim.AdamW(net.parameters(), lr=0.1)
    controls = controls_of(net, optimizer, 0.1)

    def train(steps: int) -> list[float]:
        for _ in range(steps):
            optimizer.zero_grad()
            net(torch.randn(8, 3)).square().mean().backward()
            optimizer.step()
        return [value for parameter in net.parameters() for value in parameter.detach().flatten().tolist()]

    train(2)
    controls.save(tmp_path)
    once = train(3)
    controls.restore(tmp_path)
    assert train(3) == once
    controls.set("lr_scale", "all", 0.3)
    assert optimizer.param_groups[0]["lr"] == pytest.approx(0.03)
