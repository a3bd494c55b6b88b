"""The lab's world, tools and schedules: real SQL, real errors, drift by absolute step."""

import sqlite3

import numpy as np
import pytest

from trimtab.lab.database import TOOL_NAMES, World
from trimtab.lab.experiments import ARMS
from trimtab.lab.ramp import Ramp
from trimtab.lab.tool_output import COMMON, RARE, OutputStyle
from trimtab.lab.toolbox import Toolbox


@pytest.fixture(scope="module")
def world():
    return World(seed=3, items=200)


def test_a_tool_returns_what_the_database_holds(world):
    item = world.items[17]
    for tool in TOOL_NAMES:
        row = world._db.execute(f"SELECT {tool} FROM item WHERE name = '{item}'").fetchone()
        assert world.query(tool, item).value == str(row[0])


def test_the_same_seed_builds_the_same_world_and_another_seed_another():
    assert World(seed=5, items=30).items == World(seed=5, items=30).items
    assert World(seed=5, items=30).items != World(seed=6, items=30).items


def test_the_database_refuses_to_write(world):
    with pytest.raises(sqlite3.OperationalError):
        world._db.execute("DELETE FROM item")


def test_an_item_name_with_sql_in_it_is_only_a_name(world):
    assert world.query("price", "x' OR '1'='1").error == "no_such_item"


def test_a_world_in_a_file_survives_reopening(tmp_path):
    path = tmp_path / "world.sqlite"
    first = World(seed=1, items=20, path=path)
    value = first.query("owner", first.items[0])
    first.close()
    again = World(seed=2, items=99, path=path)
    assert len(again.items) == 20
    assert again.query("owner", again.items[0]) == value


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("price nobody", "no_such_item"),
        ("weight tofa", "unknown_tool"),
        ("price", "bad_call"),
        ("", "bad_call"),
    ],
)
def test_every_call_is_observed_also_a_failed_one(world, text, error):
    seen = []
    assert Toolbox(world, on_tool_call=seen.append).call(text, step=2, row=1, turn=1) == "none"
    (event,) = seen
    assert event["error"] == error
    assert event["result_size"] == 4
    assert event["latency_s"] >= 0
    assert (event["step"], event["row"], event["turn"]) == (2, 1, 1)


def test_tool_index_names_known_tools_and_lumps_the_rest():
    assert [Toolbox.index(t) for t in ("price a", "stock a", "owner a", "weight a", "")] == [1, 2, 3, 4, 4]


def test_noise_depends_on_seed_step_row_and_turn_only(world):
    style = OutputStyle(open=True, length=Ramp.constant(20), rare=Ramp.constant(0.5))
    call = f"price {world.items[0]}"

    def render(seed=0, step=4, row=2, turn=1):
        return Toolbox(world, style, seed).call(call, step=step, row=row, turn=turn)

    assert render() == render()
    assert len({render(), render(seed=1), render(step=5), render(row=3), render(turn=2)}) == 5


def test_drift_follows_the_absolute_step():
    ramp = Ramp(7, 27, start=10, span=40)
    assert [ramp.at(s) for s in (0, 10, 20, 50, 5000)] == [7, 7, 12, 27, 27]
    assert Ramp(0, 1, start=3, span=0).at(3) == 0
    assert Ramp(0, 1, start=3, span=0).at(4) == 1


def _outputs(name, step, n=400):
    return [ARMS[name].style.render("482", step, np.random.default_rng([step, k])) for k in range(n)]


def test_open_outputs_grow_longer_and_stranger():
    def mean_length(texts):
        return np.mean([len(t) - 5 for t in texts])

    def rare_share(texts):
        return np.mean([c in RARE for t in texts for c in t])

    early, late = _outputs("open", 0), _outputs("open", 60)
    assert mean_length(early) == pytest.approx(7, rel=0.1)  # two sides, uniform on 0..7
    assert mean_length(late) == pytest.approx(24, rel=0.1)
    assert rare_share(late) > 4 * rare_share(early) > 0
    assert all("=482;" in text for text in early + late)


@pytest.mark.parametrize("step", [0, 60])
def test_in_distribution_noise_has_no_unseen_character(step):
    texts = _outputs("open_in_distribution", step)
    assert not set("".join(texts)) & set(RARE)
    assert set("".join(texts)) <= set(COMMON + "=;")


def test_constrained_output_is_the_value():
    assert set(_outputs("constrained", 60)) == {"482"}


def test_common_and_rare_are_disjoint_and_printable():
    assert not set(COMMON) & set(RARE)
    assert all(32 <= ord(c) < 127 for c in COMMON + RARE)
