"""Merging many bundles at once gives what merging one summary after the other gives."""

from __future__ import annotations

from functools import reduce
from typing import Any

import numpy as np
import pytest

from tests.stats.distributions import stream
from tests.stats.test_merge_laws import CLASSES, made
from trimtab.errors import SummaryError
from trimtab.stats import LogMoments, LogSketch, Moments, Summary, bundle, merge_bundles
from trimtab.stats.summaries import bulk_merge

KINDS = ("lognormal", "empty")


def parts(name: str, number: int = 7) -> list[Summary]:
    values = stream("lognormal")
    return [made(name, values[i::number] if i else stream("empty")) for i in range(number)]


def integers(summary: Summary) -> list[list[int]]:
    return [a.reshape(-1).tolist() for a in summary._arrays() if a.dtype.kind != "f"]


def floats(summary: Summary) -> np.ndarray:
    return np.concatenate([np.zeros(0), *(a.reshape(-1) for a in summary._arrays() if a.dtype.kind == "f")])


@pytest.mark.parametrize("name", CLASSES)
@pytest.mark.parametrize("chunk", [1, 100_000_000])
def test_equals_one_merge_after_the_other(name: str, chunk: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bulk_merge, "CHUNK_BYTES", chunk)
    summaries = parts(name)
    merged = merge_bundles([bundle({"a": one, "b": one}) for one in summaries], lambda _: type(summaries[0]))
    expected: Any = reduce(Summary.merge, summaries)
    assert list(merged) == ["a", "b"]
    for one in merged.values():
        assert integers(one) == integers(expected)
        np.testing.assert_allclose(floats(one), floats(expected), rtol=1e-12)


def test_shifted_sums_of_huge_log_weights() -> None:
    summaries = [LogMoments() for _ in range(5)]
    for i, one in enumerate(summaries):
        one.update(np.array([1000.0 * i, 3.0, -2000.0 * i]))
    merged = merge_bundles([bundle({"a": one}) for one in summaries], lambda _: LogMoments)["a"]
    expected = reduce(LogMoments.merge, summaries)
    assert merged.count == expected.count == 15
    assert merged.ess() == pytest.approx(expected.ess())
    assert (merged.min, merged.max) == (-8000.0, 4000.0)


def test_a_name_that_some_ranks_lack() -> None:
    one, two = Moments(), Moments()
    one.update([1.0])
    two.update([3.0, 5.0])
    merged = merge_bundles([bundle({"a": one}), bundle({"a": two, "b": two})], lambda _: Moments)
    assert (merged["a"].mean(), merged["b"].mean()) == (3.0, 4.0)
    assert merge_bundles([], lambda _: Moments) == merge_bundles([bundle({})], lambda _: Moments) == {}


def test_counts_beyond_what_float64_holds() -> None:
    summaries = parts("Counts", 3)
    for one in summaries:
        one._arrays()[0].reshape(-1)[0] = 2**53 + 1
    merged = merge_bundles([bundle({"a": one}) for one in summaries], lambda _: type(summaries[0]))["a"]
    assert int(merged._arrays()[0].reshape(-1)[0]) == 3 * (2**53 + 1)


def test_damaged_bytes_are_refused() -> None:
    data = bundle({"a": made("LogSketch", stream("lognormal")), "b": Moments()})
    classes = {"a": LogSketch, "b": Moments}
    for cut in range(0, len(data), 11):
        with pytest.raises(SummaryError):
            merge_bundles([data, data[:cut]], classes.get)
    with pytest.raises(SummaryError, match="another size"):
        merge_bundles([data, data + b"\0"], classes.get)
    with pytest.raises(SummaryError, match="named 'a'"):
        merge_bundles([data], {"b": Moments}.get)
    rng = np.random.default_rng(0)
    for _ in range(200):  # any damage is an error or other numbers, never another exception
        bad = bytearray(data)
        bad[int(rng.integers(4, len(bad)))] = int(rng.integers(256))
        try:
            merge_bundles([data, bytes(bad)], classes.get)
        except SummaryError:
            continue
