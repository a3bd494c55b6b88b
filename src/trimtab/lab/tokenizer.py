"""One character, one token: printable ASCII and eight special tokens, as a transformers tokenizer."""

from __future__ import annotations

from functools import lru_cache

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, processors
from transformers import PreTrainedTokenizerFast

SPECIALS = ("<pad>", "<bos>", "<eos>", "<unk>", "<call>", "</call>", "<result>", "</result>")
PAD, BOS, EOS, UNK, CALL_START, CALL_END, RESULT_START, RESULT_END = range(len(SPECIALS))
CHARS = "".join(chr(code) for code in range(32, 127))
VOCAB_SIZE = len(SPECIALS) + len(CHARS)
IDS = {char: len(SPECIALS) + index for index, char in enumerate(CHARS)}


def encode(text: str) -> list[int]:
    """Characters to ids. Never yields a special token: a tool that returns "<eos>" cannot end the episode.

    >>> encode("<eos>") == [IDS[c] for c in "<eos>"]
    True
    """
    return [IDS.get(char, UNK) for char in text]


def decode(ids: list[int]) -> str:
    """Ids to text; special tokens are written out.

    >>> decode([BOS, *encode("add 7 8?"), EOS])
    '<bos>add 7 8?<eos>'
    """
    return "".join(SPECIALS[i] if i < len(SPECIALS) else CHARS[i - len(SPECIALS)] for i in ids)


@lru_cache(maxsize=1)
def _backend() -> str:
    vocab = {token: index for index, token in enumerate((*SPECIALS, *CHARS))}
    backend = Tokenizer(models.WordLevel(vocab, unk_token=SPECIALS[UNK]))
    backend.pre_tokenizer = pre_tokenizers.Split(Regex(r"[\s\S]"), behavior="isolated")
    backend.decoder = decoders.Fuse()
    backend.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in SPECIALS])
    backend.post_processor = processors.TemplateProcessing(
        single=f"{SPECIALS[BOS]} $A", special_tokens=[(SPECIALS[BOS], BOS)]
    )
    return str(backend.to_str())


def build_tokenizer() -> PreTrainedTokenizerFast:
    """The same vocabulary for TRL: `tokenizer(prompt)` starts with bos, pads on the left, decodes losslessly.

    Unlike `encode` it reads "<call>" in a text as the special token; use it for prompts, not for tool
    outputs.
    """
    return PreTrainedTokenizerFast(
        tokenizer_object=Tokenizer.from_str(_backend()),
        pad_token=SPECIALS[PAD],
        bos_token=SPECIALS[BOS],
        eos_token=SPECIALS[EOS],
        unk_token=SPECIALS[UNK],
        padding_side="left",
        clean_up_tokenization_spaces=False,
        model_max_length=512,
    )
