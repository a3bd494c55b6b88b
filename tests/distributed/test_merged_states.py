"""What four real processes wrote equals, to the last bit of its integers, what one process wrote."""

from __future__ import annotations

import os
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.distributed.dealt_sequences import EVERY, record
from tests.support import running
from trimtab.distributed import FolderSource, Merger
from trimtab.measure.state.bulk_states import merge_packed
from trimtab.measure.state.reward_groups import GroupSums
from trimtab.measure.state.slice_state import SliceState
from trimtab.report.run_view import load_view
from trimtab.runs import RunReader

ROOT = Path(__file__).parents[2]
STEPS, RANKS = 3 * EVERY, 4


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The run of one process, and that of four at once."""
    root = tmp_path_factory.mktemp("runs")
    record(str(root / "one"), 0, 1, STEPS)
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}"}
    command = [sys.executable, "-m", "tests.distributed.dealt_sequences", str(root / "four")]
    with ExitStack() as stack:
        children = [
            stack.enter_context(
                running([*command, str(rank), str(RANKS), str(STEPS)], 120, cwd=ROOT, env=environment)
            )
            for rank in range(RANKS)
        ]
        for child in children:
            _, errors = child.communicate(timeout=130)
            assert child.returncode == 0, errors[-3000:]
    return root / "one", root / "four"


def integers(state: SliceState) -> dict[str, Any]:
    """All whole numbers of a state, by name."""
    counts: dict[str, Any] = {
        name: value for name, value in vars(state).items() if isinstance(value, int) or name == "excluded"
    }
    for key, summary in state.summaries.items():
        if isinstance(summary, GroupSums):
            counts[key] = {group: (row.num, row.solved) for group, row in summary.rows.items()}
        else:
            counts[key] = [a.tolist() for a in summary._arrays() if a.dtype.kind != "f"]
    return counts


def floats(state: SliceState) -> dict[str, np.ndarray]:
    return {
        key: np.concatenate([np.zeros(0), *(a.ravel() for a in s._arrays() if a.dtype.kind == "f")])
        for key, s in state.summaries.items()
        if not isinstance(s, GroupSums)
    }


def stored(folder: Path) -> list[dict[str, SliceState]]:
    return [states for _, states in load_view(folder).stored()]


def live(folder: Path) -> list[dict[str, SliceState]]:
    """As the merging rank sees a folder that grows."""
    merger, source = Merger(range(len(RunReader(folder).ranks))), FolderSource(folder, own=-1)
    merger.add_all(source.poll())
    steps = merger.fold(budget_s=1.0)
    assert [step.step for step in steps] == list(range(STEPS))
    assert merger.status() == {}
    return [dict(block.states) for step in steps for block in step.blocks]  # type: ignore[arg-type]


@pytest.mark.parametrize("of", [stored, live])
def test_four_processes_equal_one(folders: tuple[Path, Path], of: Any) -> None:
    one, four = map(of, folders)
    assert len(one) == len(four) == STEPS // EVERY
    for single, merged in zip(one, four, strict=True):
        assert single.keys() == merged.keys()
        for name, state in single.items():
            assert state.n_tokens > 0
            assert integers(merged[name]) == integers(state), name
            for key, values in floats(state).items():
                np.testing.assert_allclose(floats(merged[name])[key], values, rtol=1e-5, atol=1e-5)


def test_readings_have_the_same_keys_and_values(folders: tuple[Path, Path]) -> None:
    one, four = map(load_view, folders)
    for key, name in (("drift/p99", "post_tool"), ("mismatch/token_ess_frac", "all"), ("drift/p95", "text")):
        alone = one.series(key, name)
        for single in alone:
            same = [r for r in four.series(key, name) if r.step >= single.step]
            assert same
            assert same[0].value == pytest.approx(single.value, rel=0.05)


def test_bulk_merge_equals_one_state_after_the_other(folders: tuple[Path, Path]) -> None:
    texts = [row["states"] for row in RunReader(folders[1]).rows("states")]
    bulk, damaged = merge_packed([*texts, "not base64", texts[0][:-20]])
    assert damaged == (len(texts), len(texts) + 1)
    expected = load_view(folders[1]).stored()
    for name, state in bulk.items():
        slow = SliceState()
        for _, states in expected:
            slow.absorb(states[name])
        assert integers(state) == integers(slow)
        assert state.notes == slow.notes
        assert state.top_mass == slow.top_mass


def test_one_damaged_rank_is_left_out_alone(folders: tuple[Path, Path]) -> None:
    from trimtab.measure.state.blocks import compress_states

    states = stored(folders[0])[0]
    good = compress_states(states)
    broken = {name: SliceState(n_tokens=1) for name in states}
    for state in broken.values():
        state.to_bytes = lambda: b"TTSTATE\x02" + bytes(80)  # type: ignore[method-assign]
    bulk, damaged = merge_packed([good, compress_states(broken), good])
    assert damaged == (1,)
    assert bulk["all"].n_tokens == 2 * states["all"].n_tokens
