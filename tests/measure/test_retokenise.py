"""Sampled ids against the ids of their text, with a tokenizer whose merges are known."""

from __future__ import annotations

import numpy as np
import pytest

import trimtab
from tests.measure.episodes import episode_batch, on_disk
from trimtab.measure.sequences.reencoding import difference


@pytest.mark.parametrize(
    ("sampled", "again", "after", "differs"),
    [
        ([1, 2, 3], [1, 2, 3], 0, False),
        ([1, 2, 3], [1, 9], 2, True),
        ([1, 2, 3], [1, 2, 3, 4], 0, True),
        ([1, 2, 3], [1, 2], 1, True),
        ([1, 2, 3], [], 3, True),
        ([], [], 0, False),
    ],
)
def test_the_first_difference(sampled, again, after, differs):
    found = difference(sampled, again)
    assert (found.num_tokens, found.num_after, found.differs) == (len(sampled), after, differs)


def test_shares_reach_the_store(tmp_path):
    """Letters are tokens, and so is `ab`: a policy that samples a, b is re-encoded as ab."""
    rng = np.random.default_rng(0)
    vocabulary = {"a": 0, "b": 1, "c": 2, "ab": 3}

    def encode(text):
        ids, at = [], 0
        while at < len(text):
            piece = text[at : at + 2] if text[at : at + 2] in vocabulary else text[at]
            ids.append(vocabulary[piece])
            at += len(piece)
        return ids

    words = list(vocabulary)
    sampled = [rng.integers(0, 4, 12).tolist() for _ in range(40)]
    changed = after = 0
    with trimtab.open_run(tmp_path / "run", strict=True, min_tokens=10, min_trajectories=2) as run:
        for ids in sampled:
            text = "".join(words[i] for i in ids)
            run.retokenised(ids, encode(text))
            pairs = [i for i in range(11) if ids[i] == 0 and ids[i + 1] == 1]
            changed += bool(pairs)
            after += 12 - pairs[0] if pairs else 0
        run.observe(episode_batch(rng))
        run.flush(0)
    found = on_disk(tmp_path / "run")
    whole, tokens = found["all", "retokenise/sequence_frac"][0], found["all", "retokenise/token_frac"][0]
    assert (whole.value, whole.n_tokens) == (changed / 40, 40)
    assert (tokens.value, tokens.n_tokens) == (pytest.approx(after / 480), 480)
    assert 0 < changed < 40
