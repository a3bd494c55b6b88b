"""A dense Hugging Face model as a GGUF file that llama.cpp loads: weights and shapes, without a tokenizer,
since ids go in and out.

The `gguf` package writes the file and names the tensors; what is here is which models, which numbers, and the
one reordering.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch

from trimtab.errors import ObjectiveError, UnsupportedError

FORMATS = ("f32", "f16", "bf16", "q8_0")
"""How matrices are kept; vectors (norms, biases) stay float32, as in llama.cpp's own conversions."""

_ARCHITECTURES = {"llama": "LLAMA", "qwen2": "QWEN2", "qwen3": "QWEN3"}
_BLOCK = 32  # q8_0 keeps one scale for 32 numbers of a row
_LARGEST = {"f16": 65504.0, "q8_0": 65504.0 * 127}  # a q8_0 block keeps its largest / 127 as f16
_INSTALL = "pip install 'trimtab[llama]'"


def export_gguf(model: Any, path: str | Path, weights: str = "f16") -> None:
    """Write a transformers causal language model as a GGUF file, without a tokenizer.

    A word's id is its row of the embedding. llama.cpp's text tools cannot read prompts with the file.

    Args:
        model: Llama, Qwen2 or Qwen3.
        path: File to write; overwritten.
        weights: How matrices are stored, one of `FORMATS`. Vectors stay float32.

    Raises:
        UnsupportedError: By name, another model (mixtures of experts too), scaled or partial rotary
            embeddings, sliding windows, activations other than SiLU, an unknown format, rows that q8_0 cannot
            cut into blocks of 32, and a missing `gguf` package.
        ObjectiveError: Numbers that the format cannot hold.

    Example:
        >>> export_gguf(model, "policy.gguf", "q8_0")  # doctest: +SKIP

    Reference:
        GGUF specification, github.com/ggml-org/ggml, docs/gguf.md.
    """
    gguf = need_gguf()
    config = model.config
    _refuse(config, weights)
    architecture = getattr(gguf.MODEL_ARCH, _ARCHITECTURES[config.model_type])
    writer = gguf.GGUFWriter(str(path), gguf.MODEL_ARCH_NAMES[architecture])
    try:
        heads, kv_heads = _shape(writer, config)
        names = gguf.get_tensor_name_map(architecture, int(config.num_hidden_layers))
        for name, tensor in model.state_dict().items():
            if name == "lm_head.weight" and config.tie_word_embeddings:
                continue  # llama.cpp takes the embedding for it
            own = _finite(tensor.detach().to("cpu", torch.float32), name, weights)
            if config.model_type == "llama" and (".q_proj." in name or ".k_proj." in name):
                own = _interleaved(own, heads if ".q_proj." in name else kv_heads)
            _add(gguf, writer, _named(names, name), own.numpy(), weights)
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
    finally:
        writer.close()


def need_gguf() -> Any:
    """The gguf package, or UnsupportedError that says how to get it."""
    try:
        import gguf
    except ModuleNotFoundError as missing:
        raise UnsupportedError(f"the llama.cpp engine writes GGUF files: {_INSTALL}") from missing
    return gguf


def _shape(writer: Any, config: Any) -> tuple[int, int]:
    """Write what is not a tensor; (heads, key and value heads)."""
    heads = int(config.num_attention_heads)
    kv_heads = int(getattr(config, "num_key_value_heads", None) or heads)
    width = int(getattr(config, "head_dim", None) or config.hidden_size // heads)
    writer.add_context_length(int(config.max_position_embeddings))
    writer.add_embedding_length(int(config.hidden_size))
    writer.add_block_count(int(config.num_hidden_layers))
    writer.add_feed_forward_length(int(config.intermediate_size))
    writer.add_head_count(heads)
    writer.add_head_count_kv(kv_heads)
    writer.add_key_length(width)
    writer.add_value_length(width)
    writer.add_rope_dimension_count(width)
    writer.add_rope_freq_base(float(config.rope_parameters["rope_theta"]))
    writer.add_layer_norm_rms_eps(float(config.rms_norm_eps))
    writer.add_vocab_size(int(config.vocab_size))
    writer.add_tokenizer_model("none")
    return heads, kv_heads


def _refuse(config: Any, weights: str) -> None:
    if config.model_type not in _ARCHITECTURES:
        raise UnsupportedError(
            f"the llama.cpp engine exports {', '.join(_ARCHITECTURES)}, not {config.model_type!r}, and "
            "returns no routes: RoundedEngine takes any model, mixtures of experts too"
        )
    rope = config.rope_parameters or {}
    partial = rope.get("partial_rotary_factor", 1.0)
    wrong = {
        f"rope_type={rope.get('rope_type')!r}": rope.get("rope_type", "default") != "default",
        f"partial_rotary_factor={partial}": partial != 1.0,
        "use_sliding_window=True": bool(getattr(config, "use_sliding_window", False)),
        f"hidden_act={config.hidden_act!r}": config.hidden_act != "silu",
    }  # fmt: skip
    if any(wrong.values()):
        raise UnsupportedError(
            "the llama.cpp engine exports plain rotary embeddings, full attention and SiLU, not "
            + ", ".join(name for name, is_wrong in wrong.items() if is_wrong)
        )
    if weights not in FORMATS:
        raise UnsupportedError(
            f"the llama.cpp engine keeps weights in {', '.join(FORMATS)}, not in {weights!r}"
        )
    if weights == "q8_0" and (config.hidden_size % _BLOCK or config.intermediate_size % _BLOCK):
        raise UnsupportedError(
            f"q8_0 needs hidden_size and intermediate_size in multiples of {_BLOCK}, got "
            f"{config.hidden_size} and {config.intermediate_size}: take f16 or bf16"
        )


def _interleaved(weight: torch.Tensor, heads: int) -> torch.Tensor:
    """Rows of each head from transformers' order (first half, second half) to llama.cpp's pairs for Llama's
    rotation.
    """
    halves = weight.reshape(heads, 2, weight.shape[0] // heads // 2, *weight.shape[1:])
    return halves.transpose(1, 2).reshape(weight.shape).contiguous()


def _finite(values: torch.Tensor, name: str, weights: str) -> torch.Tensor:
    """The values, if the format holds each of them: some builds of llama.cpp abort the process on a number
    that is not finite.
    """
    largest = _LARGEST.get(weights, float("inf")) if values.dim() > 1 else float("inf")
    bad = int((~torch.isfinite(values) | (values.abs() > largest)).sum())
    if bad:
        raise ObjectiveError(
            f"{bad} of {values.numel()} numbers of {name} are not finite in {weights}: the weights diverged, "
            "or need bf16 or f32"
        )
    return values


def _named(names: Any, name: str) -> str:
    gguf_name = names.get_name(name, try_suffixes=(".weight", ".bias"))
    if gguf_name is None:
        raise UnsupportedError(f"the llama.cpp engine has no place in a GGUF file for the parameter {name!r}")
    return str(gguf_name)


def _add(gguf: Any, writer: Any, name: str, array: np.ndarray, weights: str) -> None:
    kind = getattr(gguf.GGMLQuantizationType, (weights if array.ndim > 1 else "f32").upper())
    writer.add_tensor(name, gguf.quants.quantize(np.ascontiguousarray(array), kind), raw_dtype=kind)
