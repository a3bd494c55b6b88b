"""llama.cpp's C functions, through llama-cpp-python's bindings: a loaded file, and a context that turns
tokens into logits.

B sequences, T tokens of one of them, V words. Errors that llama.cpp logs are kept, and spoken in ours.
"""

from __future__ import annotations

import ctypes
import weakref
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from trimtab.errors import ObjectiveError, UnsupportedError

CACHES = ("f16", "f32")
"""How keys and values may be kept; f16 is llama.cpp's own default."""

_MAX_AT_ONCE = 512  # tokens of one forward: bounds the scratch memory, a longer batch is cut by llama.cpp
_LOGGED: list[str] = []
_ERROR = 4  # of ggml_log_level (ggml.h)
_CALLBACKS: list[Any] = []  # C keeps the callback's address, so Python must keep the callback

Piece = tuple[int, list[int], int]
"""(sequence, its next tokens, position of the first of them)."""


class Loaded:
    """A GGUF file in llama.cpp's memory; `words` is the vocabulary it must have. `close()` gives the memory
    back.
    """

    def __init__(self, path: Path, words: int) -> None:
        self.library, self.words = library(), words
        settings = self.library.llama_model_default_params()
        settings.use_mmap = False  # the next synchronisation overwrites the file
        settings.n_gpu_layers = 0
        _LOGGED.clear()
        self.model = self.library.llama_model_load_from_file(str(path).encode(), settings)
        if not self.model:
            raise ObjectiveError(f"llama.cpp could not load {path}{_first_error()}")
        self.close = weakref.finalize(self, self.library.llama_model_free, self.model)
        words_in_file = self.library.llama_vocab_n_tokens(self.library.llama_model_get_vocab(self.model))
        if words_in_file != words:
            raise ObjectiveError(
                f"llama.cpp reads {words_in_file} words in {path}, not "
                f"{words}{_MISFIT if words_in_file < 1 else ''}"
            )


class Context:
    """`with Context(loaded, [40, 52], "f16", threads=1) as context`: sequences of at most so many tokens,
    each with a cache of its own.
    """

    def __init__(self, loaded: Loaded, lengths: Sequence[int], cache: str, threads: int) -> None:
        self.loaded, self.library = loaded, loaded.library
        rows, longest = len(lengths), max(lengths)
        settings = self.library.llama_context_default_params()
        settings.n_seq_max, settings.n_ctx = rows, rows * longest
        settings.n_batch, settings.n_ubatch = sum(lengths), min(sum(lengths), _MAX_AT_ONCE)
        settings.n_threads = settings.n_threads_batch = threads
        kind = {"f32": self.library.GGML_TYPE_F32, "f16": self.library.GGML_TYPE_F16}[cache]
        settings.type_k = settings.type_v = kind
        settings.flash_attn_type = self.library.LLAMA_FLASH_ATTN_TYPE_DISABLED  # it has no head of 24
        settings.kv_unified = False
        _LOGGED.clear()
        self.context = self.library.llama_init_from_model(loaded.model, settings)
        if not self.context:
            raise ObjectiveError(
                f"llama.cpp gave no context of {rows} x {longest} tokens: sample shorter rows{_first_error()}"
            )
        if self.library.llama_n_seq_max(self.context) != rows:
            raise ObjectiveError(f"llama.cpp gave another context than was asked for{_MISFIT}")
        self._batch = self.library.llama_batch_init(sum(lengths), 0, 1)

    def __enter__(self) -> Context:
        return self

    def __exit__(self, *_: object) -> None:
        self.library.llama_batch_free(self._batch)
        self.library.llama_free(self.context)

    def logits(self, pieces: Sequence[Piece], every: bool = False) -> np.ndarray:
        """float32 (B, V) after the last token of each piece; with `every` (sum of T, V), after each token of
        each.

        ObjectiveError when llama.cpp refuses the tokens, and when a logit is not finite.
        """
        batch, shown, at = self._batch, [], 0
        for row, tokens, position in pieces:
            for offset, token in enumerate(tokens):
                batch.token[at], batch.pos[at] = token, position + offset
                batch.n_seq_id[at], batch.seq_id[at][0] = 1, row
                batch.logits[at] = every or offset == len(tokens) - 1
                if batch.logits[at]:
                    shown.append(at)
                at += 1
        batch.n_tokens = at
        _LOGGED.clear()
        code = self.library.llama_decode(self.context, batch)
        if code:
            raise ObjectiveError(f"llama.cpp could not decode {at} tokens (code {code}){_first_error()}")
        rows = [self.library.llama_get_logits_ith(self.context, index) for index in shown]
        logits = np.stack([np.ctypeslib.as_array(row, shape=(self.loaded.words,)) for row in rows])  # a copy
        if not np.isfinite(logits).all():
            bad = int((~np.isfinite(logits)).any(axis=1).sum())
            raise ObjectiveError(
                f"llama.cpp gave logits that are not finite at {bad} of {len(logits)} tokens: the weights "
                "diverged, or overflow the format (bf16 and f32 reach furthest)"
            )
        return logits


def library() -> Any:
    """llama_cpp's C functions, or UnsupportedError that says how to get them."""
    try:
        from llama_cpp import llama_cpp
    except (ImportError, OSError, RuntimeError) as missing:
        raise UnsupportedError(
            "LlamaCppEngine needs llama.cpp: pip install 'trimtab[llama]' (compiles; "
            f"docs/how-to/inference-engines.md says how to be quick) ({type(missing).__name__}: {missing})"
        ) from missing
    if not _CALLBACKS:
        _CALLBACKS.append(llama_cpp.llama_log_callback(_keep))
        llama_cpp.llama_backend_init()
    llama_cpp.llama_log_set(_CALLBACKS[0], ctypes.c_void_p(0))
    return llama_cpp


_MISFIT = ": llama_cpp loads another library than its bindings are for (is LLAMA_CPP_LIB_PATH set?)"


def _keep(level: int, text: bytes, _data: Any) -> None:
    if level == _ERROR:
        _LOGGED.append(text.decode("utf-8", "replace").strip())


def _first_error() -> str:
    # the first error is the cause, those after it say who gave up
    return f": {_LOGGED[0]}" if _LOGGED else ""
