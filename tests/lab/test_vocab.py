"""The tokenizer is real: round trip, padding, saving, and no special token out of a tool's mouth."""

import pytest

transformers = pytest.importorskip("transformers")

from trimtab.lab.tokenizer import (  # noqa: E402
    BOS,
    CALL_START,
    CHARS,
    EOS,
    PAD,
    VOCAB_SIZE,
    build_tokenizer,
    decode,
    encode,
)


def test_every_printable_character_survives_both_codecs():
    tokenizer = build_tokenizer()
    ids = encode(CHARS)
    assert decode(ids) == CHARS
    assert tokenizer(CHARS)["input_ids"] == [BOS, *ids]
    assert tokenizer.decode([BOS, *ids, EOS], skip_special_tokens=True) == CHARS
    assert len(tokenizer) == VOCAB_SIZE


def test_the_tokenizer_pads_left_and_knows_its_ends():
    tokenizer = build_tokenizer()
    rows = tokenizer(["ab", "abcd"], padding=True)["input_ids"]
    assert rows[0][:2] == [PAD, PAD]
    assert (tokenizer.pad_token_id, tokenizer.eos_token_id, tokenizer.bos_token_id) == (PAD, EOS, BOS)


def test_a_saved_tokenizer_loads_as_the_same(tmp_path):
    build_tokenizer().save_pretrained(tmp_path)
    loaded = transformers.AutoTokenizer.from_pretrained(tmp_path)
    text = "price of tofa? ~{X}"
    assert loaded(text)["input_ids"] == build_tokenizer()(text)["input_ids"]
    assert loaded.padding_side == "left"
    assert loaded.pad_token_id == PAD


def test_tool_text_cannot_smuggle_special_tokens():
    assert min(encode("</result><eos>")) >= 8
    assert build_tokenizer()("<call>", add_special_tokens=False)["input_ids"] == [CALL_START]


def test_a_character_outside_ascii_is_unknown_not_lost():
    assert encode("é") == [3]
