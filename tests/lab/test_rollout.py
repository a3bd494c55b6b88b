"""The shipped agent plays for real: true log-probabilities, forced tool tokens, TRL's contract."""

from types import SimpleNamespace

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from trimtab.lab.database import World  # noqa: E402
from trimtab.lab.experiments import open_arm  # noqa: E402
from trimtab.lab.model import agent_path, load_agent  # noqa: E402
from trimtab.lab.rollout import Limits, rollout  # noqa: E402
from trimtab.lab.sft import CONSTRAINED, evaluate  # noqa: E402
from trimtab.lab.tokenizer import EOS, decode  # noqa: E402
from trimtab.lab.toolbox import Toolbox  # noqa: E402


@pytest.fixture(scope="module", autouse=True)
def _one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def agent():
    return load_agent()[0]


@pytest.fixture(scope="module")
def played(agent):
    """One TRL call of the open arm at step 30, with the calls it made."""
    calls = []
    lab = open_arm("open", steps=1, prompts_per_step=12, seed=2, on_tool_call=calls.append)
    trainer = SimpleNamespace(
        model=agent,
        accelerator=SimpleNamespace(unwrap_model=lambda m: m),
        state=SimpleNamespace(global_step=30),
    )
    prompts = [lab.tasks.prompt(30, row) for row in range(12) for _ in range(4)]
    return prompts, lab.rollout_func(prompts, trainer), calls


def test_the_checkpoint_is_small_and_loads_by_path():
    from transformers import AutoModelForCausalLM, AutoTokenizer

    model = AutoModelForCausalLM.from_pretrained(agent_path())
    assert 400_000 < sum(p.numel() for p in model.parameters()) < 500_000
    assert model.dtype == torch.float32
    assert model.config._name_or_path == agent_path()
    assert AutoTokenizer.from_pretrained(agent_path()).eos_token_id == EOS


def test_the_agent_is_good_enough_to_learn_and_bad_enough_to_need_it(agent):
    shares = evaluate(agent, CONSTRAINED, n=256)
    assert 0.2 < shares["all"] < 0.55
    assert shares["call_rate"] > 0.75


def test_lengths_and_masks_follow_the_contract(played):
    prompts, out, calls = played
    per_token = ("completion_ids", "logprobs", "env_mask", "tool_index")
    assert {len(values) for values in out.values()} == {len(prompts)}
    for row in zip(*(out[key] for key in per_token), strict=True):
        assert len({len(column) for column in row}) == 1
        _, logprobs, env_mask, tool_index = map(np.array, row)
        assert (logprobs[env_mask == 0] == 0).all()
        assert (logprobs[env_mask == 1] <= 0).all()
        assert (np.diff((tool_index > 0).astype(int)) >= 0).all()
        assert ((tool_index > 0) | (env_mask == 1)).all()
    assert sum(out["num_calls"]) == len(calls) > 20


def test_tool_tokens_are_the_tools_words(played):
    _, out, calls = played
    replay = open_arm("open", steps=1, seed=2).toolbox
    checked = 0
    for row, (ids, mask, called) in enumerate(
        zip(out["completion_ids"], out["env_mask"], out["called"], strict=True)
    ):
        tool_ids = [token for token, own in zip(ids, mask, strict=True) if not own]
        expected = [
            f"<result>{replay.call(text, step=30, row=row, turn=turn)}</result>"
            for turn, text in enumerate(called, start=1)
        ]
        assert "".join(expected).startswith(decode(tool_ids))
        assert decode(tool_ids) == "".join(expected) or out["stop_reason"][row] == "length"
        checked += len(called)
    assert checked == len(calls) > 20


def test_final_text_is_what_follows_the_last_result(played):
    _, out, _ = played
    for ids, final, stop in zip(out["completion_ids"], out["final"], out["stop_reason"], strict=True):
        text = decode(ids)
        if stop == "eos":
            assert text.split("</result>")[-1] == final + "<eos>"


@pytest.mark.parametrize("temperature", [1.0, 0.7])
def test_sampled_logprobs_equal_a_fresh_forward_pass(agent, temperature):
    lab = open_arm("open", steps=1, prompts_per_step=12, seed=5)
    limits = Limits(temperature=temperature)
    worst = 0.0
    for episode in rollout(agent, lab.prompts, lab.toolbox, step=30, seed=5, limits=limits):
        ids = torch.tensor([episode.prompt_ids + episode.ids])
        with torch.no_grad():
            logp = torch.log_softmax(agent(ids).logits[0, :-1] / temperature, -1)
        own = logp.gather(1, ids[0, 1:, None])[len(episode.prompt_ids) - 1 :, 0]
        mask = torch.tensor(episode.env_mask, dtype=torch.bool)
        worst = max(worst, float((own - torch.tensor(episode.logprobs))[mask].abs().max()))
    assert worst < 1e-4


def test_rollouts_are_reproducible_and_differ_by_step(agent):
    lab = open_arm("constrained", steps=1, seed=7)
    first, again, later = (
        [e.ids for e in rollout(agent, lab.prompts, lab.toolbox, step=s, seed=7)] for s in (0, 0, 1)
    )
    assert first == again
    assert first != later


def test_limits_end_an_episode(agent):
    world = World(seed=0)
    prompts = [f"owner and stock of {item}?" for item in world.items[:16]]
    short = rollout(agent, prompts, Toolbox(world), limits=Limits(max_tokens=6))
    assert {len(e.ids) for e in short} == {6}
    none_allowed = rollout(agent, prompts, Toolbox(world), limits=Limits(max_calls=0))
    assert {e.stop_reason for e in none_allowed} & {"calls"}
    assert not any(e.called for e in none_allowed)
    assert rollout(agent, [], Toolbox(world)) == []
