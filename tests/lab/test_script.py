"""Scripted episodes: probes are fixed, SFT data holds nothing strange and is spoiled as declared."""

import numpy as np
import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")

from trimtab.lab.database import World
from trimtab.lab.probe_bank import probe_bank
from trimtab.lab.sft import SFT_WORLD, SPOIL, sft_episode
from trimtab.lab.tokenizer import PAD, decode, encode
from trimtab.lab.tool_environment import LabEnvironment, environment_reward
from trimtab.lab.tool_output import RARE


def test_probes_are_the_same_every_time():
    first, again, other = probe_bank(16, seed=3), probe_bank(16, seed=3), probe_bank(16, seed=4)
    assert np.array_equal(first.ids, again.ids)
    assert not np.array_equal(first.ids, other.ids)


def test_probe_masks_agree_with_each_other():
    bank = probe_bank()
    assert {
        a.shape for a in (bank.ids, bank.attention_mask, bank.loss_mask, bank.env_mask, bank.tool_index)
    } == {bank.ids.shape}
    assert np.array_equal(bank.ids == PAD, ~bank.attention_mask)
    prompt = np.arange(bank.ids.shape[1]) < bank.prompt_lengths[:, None]
    assert np.array_equal(bank.loss_mask, bank.env_mask & bank.attention_mask & ~prompt)
    has_tool = (~bank.env_mask).any(1)
    assert has_tool.tolist() == [style != "text" for style in bank.style]
    assert (bank.post_tool.any(1) == has_tool).all()


def test_only_the_open_probes_hold_rare_characters():
    bank = probe_bank(64)
    rare = np.isin(bank.ids, encode(RARE)).any(1)
    styles = np.array(bank.style)
    assert not rare[styles != "open"].any()
    assert rare[styles == "open"].mean() > 0.9


def test_an_empty_bank_is_refused():
    with pytest.raises(ValueError, match="at least 1"):
        probe_bank(0)


def test_sft_data_is_spoiled_as_declared_and_never_strange():
    world = World(SFT_WORLD)
    episodes = [sft_episode(world, 0, 0, row) for row in range(1500)]
    text = "".join(decode([i for i in e.prompt_ids + e.ids if i >= 8]) for e in episodes)
    assert not set(text) & set(RARE)
    tool = [e for e in episodes if e.task.calls]
    assert np.mean([not e.called for e in tool]) == pytest.approx(SPOIL.no_call, abs=0.03)
    plain = [e for e in episodes if not e.task.calls]
    assert np.mean([e.final != e.task.answer for e in plain]) == pytest.approx(SPOIL.wrong, abs=0.06)


def test_the_environment_speaks_trl():
    env = LabEnvironment()
    world = World(0)
    item = world.items[0]
    assert env.reset(prompt=[{"role": "user", "content": f"price of {item}?"}]) is None
    assert env.price(item) == env.answer == world.query("price", item).value
    assert env.owner("nobody") == "none"
    completions = [[{"role": "assistant", "content": env.answer}], "wrong"]
    assert environment_reward(completions=completions, environments=[env, env]) == [1.0, 0.0]
    tools = {name for name, f in vars(LabEnvironment).items() if callable(f) and not name.startswith("_")}
    assert tools == {"reset", "price", "stock", "owner"}
