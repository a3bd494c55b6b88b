from __future__ import annotations

import pytest


@pytest.fixture
def engine_of():
    """Makes engines, and closes them after the test; skips where llama.cpp is not installed."""
    pytest.importorskip(
        "llama_cpp", reason="needs llama.cpp: `bash .ci/llama.sh` compiles it", exc_type=ImportError
    )
    pytest.importorskip("gguf", reason="needs gguf: `bash .ci/llama.sh` installs it")
    from trimtab.training.llamacpp import LlamaCppEngine

    made = []

    def make(*args, **kwargs):
        made.append(LlamaCppEngine(*args, **kwargs))
        return made[-1]

    yield make
    for engine in made:
        engine.close()
