"""Prompts carry everything; alpha is realised by the absolute step; the verifier is exact."""

import numpy as np
import pytest

from trimtab.errors import TrimtabError
from trimtab.lab.database import World
from trimtab.lab.experiments import ARMS, open_arm
from trimtab.lab.ramp import Ramp
from trimtab.lab.tasks import TaskMix, correct_reward, format_reward, parse_task


@pytest.fixture(scope="module")
def world():
    return World(seed=0)


def test_text_tasks_have_their_answer_in_the_prompt(world):
    answers = {p: parse_task(p, world).answer for p in ("copy tofa?", "reverse tofa?", "add 7 8?")}
    assert answers == {"copy tofa?": "tofa", "reverse tofa?": "afot", "add 7 8?": "15"}


def test_tool_tasks_have_their_answer_in_the_database(world):
    item = world.items[3]
    task = parse_task(f"owner and stock of {item}?", world)
    assert task.calls == (f"owner {item}", f"stock {item}")
    assert task.answer == f"{world.query('owner', item).value} {world.query('stock', item).value}"


def test_a_foreign_prompt_is_refused(world):
    with pytest.raises(TrimtabError, match="not a lab prompt"):
        parse_task("What is the capital of France?", world)


@pytest.mark.parametrize("alpha", [0.0, 0.3, 1.0])
def test_alpha_is_the_realised_share_of_tool_tasks(world, alpha):
    mix = TaskMix(world, alpha=Ramp.constant(alpha))
    tool = [bool(parse_task(mix.prompt(0, row), world).calls) for row in range(1000)]
    assert np.mean(tool) == pytest.approx(alpha, abs=4 * np.sqrt(0.25 / 1000))


def test_alpha_rises_with_the_absolute_step(world):
    mix = TaskMix(world, alpha=Ramp(0.2, 0.9, span=30))
    share = [np.mean([bool(parse_task(mix.prompt(s, r), world).calls) for r in range(400)]) for s in (0, 30)]
    assert share[0] == pytest.approx(0.2, abs=0.1)
    assert share[1] == pytest.approx(0.9, abs=0.1)


def test_a_longer_run_starts_as_the_short_one():
    short, long = (open_arm("open", steps=steps, seed=4).prompts for steps in (3, 9))
    assert long[: len(short)] == short
    assert len(short) == 24


def test_arms_of_one_seed_share_their_prompts():
    runs = {name: open_arm(name, steps=4, seed=1).prompts for name in ARMS if name != "text_only"}
    assert len({tuple(prompts) for prompts in runs.values()}) == 1


def test_an_unknown_arm_is_refused_by_name():
    with pytest.raises(TrimtabError, match="no arm called 'closed'"):
        open_arm("closed", steps=1)


def test_the_verifier_is_exact():
    assert correct_reward(final=["482", " 482", "482 "], answer=["482"] * 3) == [1.0, 0.0, 0.0]
    assert format_reward(stop_reason=["eos", "eos", "calls"], num_calls=[1, 0, 4], want_calls=[1, 1, 1]) == [
        1,
        0,
        0,
    ]
