"""The exported numbers are the policy's, rounded as the format says; what cannot be exported is refused by name."""

from __future__ import annotations

import sys

import pytest

pytest.importorskip("trl", reason="needs the trl extra")
import torch

from tests.training.llamacpp.support import KINDS, loaded, read_back, tiny
from tests.training.tiny import moe
from trimtab.errors import ObjectiveError, UnsupportedError
from trimtab.training.llamacpp import FORMATS, LlamaCppEngine, export_gguf


def as_kept(weight, to):
    """By hand: q8_0 keeps 32 numbers of a row as whole multiples of the largest / 127, and that as f16."""
    if to == "f32" or weight.dim() < 2:
        return weight
    if to != "q8_0":
        return weight.to({"f16": torch.float16, "bf16": torch.bfloat16}[to]).float()
    blocks = weight.reshape(*weight.shape[:-1], -1, 32)
    step = blocks.abs().amax(-1, keepdim=True) / 127
    return ((blocks / step).nan_to_num(0.0).round() * step.half().float()).reshape(weight.shape)


@pytest.mark.llama
@pytest.mark.parametrize("weights", FORMATS)
@pytest.mark.parametrize("kind", KINDS)
def test_the_file_holds_the_rounded_weights(kind, weights, tmp_path):
    pytest.importorskip("gguf", reason="needs gguf: `bash .ci/llama.sh` installs it")
    net = loaded(tiny(kind, tmp_path / kind))
    expected = {name: as_kept(p.detach(), weights) for name, p in net.named_parameters()}
    path = tmp_path / "model.gguf"
    path.write_bytes(b"what was there before")
    export_gguf(net, path, weights)
    for name, parameter in read_back(path, net).named_parameters():
        # a number half way between two steps may go either way
        most = 1e-7 if weights != "q8_0" else float(expected[name].abs().max()) / 127 * 1.01
        assert float((parameter.detach() - expected[name]).abs().max()) <= most, name
        assert float((parameter != expected[name]).float().mean()) < 1e-3, name


@pytest.mark.llama
def test_models_it_cannot_export(tmp_path):
    pytest.importorskip("gguf", reason="needs gguf: `bash .ci/llama.sh` installs it")
    path = tmp_path / "model.gguf"
    with pytest.raises(
        UnsupportedError, match=r"llama, qwen2, qwen3, not 'qwen3_moe', and returns no routes"
    ):
        export_gguf(loaded(moe(tmp_path / "moe")), path)
    net = loaded(tiny("llama", tmp_path / "llama"))
    with pytest.raises(UnsupportedError, match="weights in f32, f16, bf16, q8_0, not in 'q4_k'"):
        export_gguf(net, path, "q4_k")
    net.config.rope_parameters["rope_type"] = "linear"
    with pytest.raises(UnsupportedError, match=r"not rope_type='linear'$"):
        export_gguf(net, path)
    net.config.rope_parameters["rope_type"] = "default"
    net.config.hidden_act = "gelu"
    with pytest.raises(UnsupportedError, match=r"not hidden_act='gelu'$"):
        export_gguf(net, path)
    net.config.hidden_act = "silu"
    net.register_parameter("extra", torch.nn.Parameter(torch.zeros(2)))
    with pytest.raises(UnsupportedError, match="no place in a GGUF file for the parameter 'extra'"):
        export_gguf(net, path)
    narrow = loaded(tiny("llama", tmp_path / "narrow", intermediate_size=40))
    with pytest.raises(UnsupportedError, match="multiples of 32, got 64 and 40"):
        export_gguf(narrow, path, "q8_0")
    sliding = loaded(tiny("qwen2", tmp_path / "sliding", use_sliding_window=True))
    with pytest.raises(UnsupportedError, match=r"not use_sliding_window=True$"):
        export_gguf(sliding, path)


@pytest.mark.llama
def test_numbers_that_a_format_cannot_hold(tmp_path):
    pytest.importorskip("gguf", reason="needs gguf: `bash .ci/llama.sh` installs it")
    net, path = loaded(tiny("llama", tmp_path / "llama")), tmp_path / "model.gguf"
    for value, refusing in (
        (7e4, ["f16"]),
        (9e6, ["f16", "q8_0"]),
        (float("inf"), FORMATS),
        (float("nan"), FORMATS),
    ):
        with torch.no_grad():
            net.lm_head.weight[7, 3] = value
        for weights in FORMATS:
            if weights in refusing:
                with pytest.raises(
                    ObjectiveError, match=rf"1 of \d+ numbers of lm_head\.weight are not finite in {weights}"
                ):
                    export_gguf(net, path, weights)
            else:
                export_gguf(net, path, weights)
                assert torch.isfinite(read_back(path, loaded(str(tmp_path / "llama"))).lm_head.weight).all()


def test_without_the_packages_it_says_what_to_install(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "llama_cpp", None)
    monkeypatch.setitem(sys.modules, "gguf", None)
    with pytest.raises(
        UnsupportedError, match=r"LlamaCppEngine needs llama\.cpp: pip install 'trimtab\[llama\]'"
    ):
        LlamaCppEngine(max_new_tokens=4)
    with pytest.raises(UnsupportedError, match=r"writes GGUF files: pip install 'trimtab\[llama\]'"):
        export_gguf(None, tmp_path / "x.gguf")
    for wrong in ({"weights": "q4_k"}, {"cache": "q8_0"}):
        with pytest.raises(
            UnsupportedError, match="weights in f32, f16, bf16, q8_0 and its cache in f16 or f32"
        ):
            LlamaCppEngine(**wrong, max_new_tokens=4)
