"""Tokens of a turn as the page colours them: by the log-ratio that the log gives of each."""

from __future__ import annotations

import importlib
import math
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from trimtab.errors import TraceError
from trimtab.traces.core.episode import Turn

MAX_TOKENS = 2_000
"""Tokens of one turn on the page."""

_MAX_CHARS = 80  # of one token


def tokens_shown(turn: Turn, decode: Callable[[int], str] | None = None) -> dict[str, Any] | None:
    """`text` and `ratio` (nats, None where the log has none) of the turn's first MAX_TOKENS, how many `more`
    there are; None without a log-ratio. The text is the log's, else `decode`'s of the id, else the id, and
    then `named` is false.

    >>> tokens_shown(Turn(token_ids=[5, 6], log_ratios=[float("nan"), -1.23456]))
    {'text': ['5', '6'], 'ratio': [None, -1.235], 'more': 0, 'named': False}
    """
    ids, ratios, texts = turn.token_ids or [], turn.log_ratios or [], turn.token_texts
    if len(ids) != len(ratios) or not any(map(math.isfinite, ratios)):
        return None
    if texts is None or len(texts) != len(ids):
        texts = None if decode is None else [decode(i) for i in ids[:MAX_TOKENS]]
    shown = [text[:_MAX_CHARS] for text in (texts or map(str, ids[:MAX_TOKENS]))][:MAX_TOKENS]
    return {
        "text": shown, "ratio": [round(r, 3) if math.isfinite(r) else None for r in ratios[:MAX_TOKENS]],
        "more": max(0, len(ids) - MAX_TOKENS), "named": texts is not None,
    }  # fmt: skip


def decoder(path: str | os.PathLike[str]) -> Callable[[int], str]:
    """Ids to text by a `tokenizer.json`, or by the one of a folder. TraceError where it cannot be read."""
    file = Path(path) / "tokenizer.json" if Path(path).is_dir() else Path(path)
    try:
        tokenizer: Any = importlib.import_module("tokenizers").Tokenizer.from_file(str(file))
    except ImportError as error:
        raise TraceError("--tokenizer needs the package tokenizers: pip install tokenizers") from error
    except Exception as error:  # its Rust side raises Exception itself
        raise TraceError(f"{file} is not a tokenizer.json: {error}") from error
    size = tokenizer.get_vocab_size()
    return lambda i: str(tokenizer.decode([i], skip_special_tokens=False)) if 0 <= i < size else str(i)
