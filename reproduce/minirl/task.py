"""The task: a sum of digits modulo 5, worked out one running total after the other or answered at once. A digit is a token.

`34021=` is answered `2240` (3+4 is 2 modulo 5, 2+0 is 2, 2+2 is 4, 4+1 is 0), or its last digit alone. Only that one is judged, right or wrong.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from datasets import Dataset
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

__all__ = [
    "LONGEST",
    "SYMBOLS",
    "correct",
    "dataset",
    "demonstration",
    "digits_of",
    "make_tokenizer",
    "text_of",
]

BASE = 5
SYMBOLS = "01234="
PAD, END = "<pad>", "<end>"
DIGITS = 8  # of a question
LONGEST = 9  # tokens of a completion; the longest right one has 7 and the end
STEP_BY_STEP = 0.75  # of the demonstrations
HELD_OUT = 7  # questions whose number is a multiple of this are never trained on


def digits_of(rng: np.random.Generator, held_out: bool = False) -> list[int]:
    """One question; one in `HELD_OUT` is kept for the held-out score."""
    while True:
        digits = rng.integers(0, BASE, DIGITS).tolist()
        if (int("".join(map(str, digits)), BASE) % HELD_OUT == 0) == held_out:
            return [int(digit) for digit in digits]


def text_of(digits: list[int]) -> str:
    """The question.

    >>> text_of([3, 4, 0, 2, 1])
    '34021='
    """
    return "".join(map(str, digits)) + "="


def demonstration(digits: list[int], steps: bool) -> str:
    """A right answer, with its running totals or without.

    >>> demonstration([3, 4, 0, 2, 1], True), demonstration([3, 4, 0, 2, 1], False)
    ('2240', '0')
    """
    totals = [sum(digits[:number]) % BASE for number in range(2, len(digits) + 1)]
    return "".join(map(str, totals if steps else totals[-1:]))


def correct(prompts: list[str], completions: list[str], **_: Any) -> list[float]:
    """1.0 where the last character is the sum modulo 5, else 0.0: a reward function of TRL.

    >>> correct(["34021="] * 4, ["2240", "0", "224", ""])
    [1.0, 1.0, 0.0, 0.0]
    """
    wanted = [str(sum(map(int, prompt.rstrip("="))) % BASE) for prompt in prompts]
    return [float(own[-1:] == right) for own, right in zip(completions, wanted, strict=True)]


def dataset(number: int, seed: int, *, held_out: bool = False) -> Dataset:
    """So many questions in TRL's form."""
    rng = np.random.default_rng([seed, int(held_out)])
    return Dataset.from_dict({"prompt": [text_of(digits_of(rng, held_out)) for _ in range(number)]})


def make_tokenizer() -> PreTrainedTokenizerFast:
    """A character a token."""
    known = {symbol: at for at, symbol in enumerate([*SYMBOLS, PAD, END])}
    raw = Tokenizer(models.WordLevel(known, unk_token=PAD))
    raw.pre_tokenizer = pre_tokenizers.Split(Regex("."), "isolated")
    raw.decoder = decoders.Fuse()
    return PreTrainedTokenizerFast(tokenizer_object=raw, pad_token=PAD, eos_token=END)
