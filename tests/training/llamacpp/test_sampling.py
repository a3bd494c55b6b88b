"""mu of the llama.cpp engine is what transformers' own sampling loop would draw from, for every setting a trainer has."""

from __future__ import annotations

import math
from types import SimpleNamespace

import pytest

pytest.importorskip("trl", reason="needs the trl extra")
import torch

from tests.training.llamacpp.support import loaded, tiny
from trimtab.training.llamacpp.sampling import Sampling

SETTINGS = [
    {},
    {"temperature": 0.5},
    {"top_k": 5},
    {"top_p": 0.7},
    {"min_p": 0.05},
    {"repetition_penalty": 1.3},
    {"temperature": 1.7, "top_k": 40, "top_p": 0.9, "min_p": 0.01, "repetition_penalty": 0.8},
]


@pytest.mark.parametrize("settings", SETTINGS, ids=lambda s: "+".join(s) or "plain")
def test_it_is_what_generate_draws_from(settings, tmp_path):
    net = loaded(tiny("llama", tmp_path / "llama"))
    off = {"temperature": 1.0, "top_k": 0, "top_p": 1.0, "min_p": None, "repetition_penalty": 1.0}
    prompt = torch.tensor([[5, 9, 33, 7], [8, 8, 40, 41]])
    torch.manual_seed(0)
    with torch.no_grad():
        out = net.generate(
            prompt, attention_mask=torch.ones_like(prompt), max_new_tokens=6, do_sample=True, output_logits=True, output_scores=True,
            return_dict_in_generate=True, eos_token_id=None, **{**off, **settings},
        )  # fmt: skip
    sampling = Sampling.of(SimpleNamespace(**{**off, **settings}))
    assert len(out.scores) == 6
    for step, (raw, processed) in enumerate(zip(out.logits, out.scores, strict=True)):
        before = out.sequences[:, : 4 + step].tolist()
        found = sampling.log_probabilities(before, raw)
        torch.testing.assert_close(found, processed.double().log_softmax(-1), rtol=1e-5, atol=1e-5)


def test_closed_forms_and_edges():
    logits = torch.log(torch.tensor([[0.5, 0.25, 0.125, 0.125]]))
    two = Sampling(top_p=0.6).log_probabilities([[0]], logits)
    torch.testing.assert_close(two.exp(), torch.tensor([[2 / 3, 1 / 3, 0.0, 0.0]], dtype=torch.float64))
    cold = Sampling(temperature=0.5).log_probabilities([[0]], logits)
    assert float(cold[0, 0]) == pytest.approx(math.log(0.25 / (0.25 + 0.0625 + 2 * 0.015625)), abs=1e-6)
    ties = Sampling(top_k=1).log_probabilities([[0]], torch.tensor([[1.0, 1.0, 0.0]]))
    assert torch.isfinite(ties[0, :2]).all()  # words as likely as the last one kept stay, as in transformers
    one = Sampling(top_p=1e-9).log_probabilities([[0]], torch.tensor([[3.0]]))
    assert float(one) == 0.0
