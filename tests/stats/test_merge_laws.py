"""The contract of every mergeable summary, over every class and every distribution that ever broke one."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tests.stats.distributions import MAKERS, Float32, stream
from trimtab.errors import SummaryError
from trimtab.stats import (
    CategoryCounts,
    ClusterTail,
    Counts,
    ExtremeCounts,
    LogMoments,
    LogSketch,
    Moments,
    Summary,
    TopK,
)

Feed = Callable[[Any, Float32, slice], None]


def _rows(x: Float32) -> np.ndarray[Any, np.dtype[np.int64]]:
    return np.arange(x.size) * 7 % 5


CLASSES: dict[str, tuple[Callable[[], Summary], Feed, Summary]] = {
    "LogSketch": (LogSketch, lambda s, x, part: s.update(x[part]), LogSketch(mantissa_bits=4)),
    "LogSketch of 5 rows": (
        lambda: LogSketch(rows=5),
        lambda s, x, part: s.update(x[part], _rows(x)[part]),
        LogSketch(rows=4),
    ),
    "LogMoments": (LogMoments, lambda s, x, part: s.update(x[part]), Moments()),
    "Moments": (Moments, lambda s, x, part: s.update(x[part]), LogMoments()),
    "ExtremeCounts": (ExtremeCounts, lambda s, x, part: s.update(x[part]), Moments()),
    "TopK": (lambda: TopK(k=50), lambda s, x, part: s.update(x[part]), TopK(k=51)),
    "TopK of 5 rows": (
        lambda: TopK(rows=5, k=50),
        lambda s, x, part: s.update(x[part], _rows(x)[part]),
        TopK(rows=6, k=50),
    ),
    "CategoryCounts of 5 rows": (
        lambda: CategoryCounts(5, 3),
        lambda s, x, part: s.update((np.arange(x.size) % 3)[part], _rows(x)[part]),
        CategoryCounts(5, 4),
    ),
    "Counts": (
        lambda: Counts(5, 2),
        lambda s, x, part: s.add(np.stack([np.bincount(_rows(x)[part], minlength=5)] * 2, axis=1)),
        Counts(5, 3),
    ),
    "ClusterTail": (
        lambda: ClusterTail(clusters=8),
        lambda s, x, part: s.update(x[part], None, (np.arange(x.size) // 9)[part]),
        ClusterTail(clusters=9),
    ),
    "ClusterTail of 5 rows": (
        lambda: ClusterTail(rows=5, clusters=8),
        lambda s, x, part: s.update(x[part], _rows(x)[part], (np.arange(x.size) // 9)[part]),
        ClusterTail(rows=5, clusters=9),
    ),
}


@pytest.fixture(params=CLASSES)
def cls(request: pytest.FixtureRequest) -> str:
    return str(request.param)


STREAMS = {name: stream(name) for name in MAKERS}


def over_streams(law: Callable[[str, Float32], None]) -> Callable[[str], None]:
    """A law of one class and one stream as a test of one class over every stream; a failure names the stream."""

    def test(cls: str) -> None:
        for name, x in STREAMS.items():
            try:
                law(cls, x)
            except Exception as error:
                raise AssertionError(f"the law does not hold for the stream {name}") from error

    test.__doc__ = law.__doc__
    return test


def made(cls: str, x: Float32, part: slice = slice(None)) -> Summary:
    summary = CLASSES[cls][0]()
    CLASSES[cls][1](summary, x, part)
    return summary


def close(a: Summary, b: Summary) -> bool:
    """Counts equal, float sums to 1e-9; to 1e-6 in LogSketch, which adds float32 pieces that end elsewhere.

    A sum in which signs cancel may be off by a tenth of that of the largest in its array (the sum of squares).
    """
    rtol = 1e-6 if isinstance(a, LogSketch) else 1e-9
    for mine, other in zip(a._arrays(), b._arrays(), strict=True):
        if mine.dtype.kind == "i":
            if not np.array_equal(mine, other):
                return False
            continue
        scale = np.abs(mine).max(initial=0.0, where=np.isfinite(mine))
        if not np.allclose(mine, other, rtol=rtol, atol=rtol / 10 * scale):
            return False
    return True


def thirds(cls: str, x: Float32) -> list[Summary]:
    a, b = x.size // 5, x.size // 2
    return [made(cls, x, part) for part in (slice(0, a), slice(a, b), slice(b, None))]


@over_streams
def test_empty_is_the_identity_on_either_side(cls: str, x: Float32) -> None:
    whole, empty = made(cls, x), CLASSES[cls][0]()
    assert whole + empty == whole
    assert empty + whole == whole


@over_streams
def test_merge_is_commutative(cls: str, x: Float32) -> None:
    a, b, _ = thirds(cls, x)
    assert a + b == b + a


@over_streams
def test_merge_is_associative(cls: str, x: Float32) -> None:
    a, b, c = thirds(cls, x)
    assert close((a + b) + c, a + (b + c))


@over_streams
def test_merge_leaves_its_arguments_alone(cls: str, x: Float32) -> None:
    a, b, _ = thirds(cls, x)
    before = copy.deepcopy(a), copy.deepcopy(b)
    merged = a.merge(b)
    CLASSES[cls][1](merged, np.ones(3, dtype=np.float32), slice(None))
    assert (a, b) == before


@over_streams
def test_merged_parts_equal_one_stream(cls: str, x: Float32) -> None:
    a, b, c = thirds(cls, x)
    assert close(a + b + c, made(cls, x))


@over_streams
def test_update_in_parts_equals_one_update(cls: str, x: Float32) -> None:
    whole = CLASSES[cls][0]()
    for start in range(0, x.size, 100):
        CLASSES[cls][1](whole, x, slice(start, start + 100))
    assert close(whole, made(cls, x))


@over_streams
def test_survives_bytes_pickle_and_copy(cls: str, x: Float32) -> None:
    whole = made(cls, x)
    assert type(whole).from_bytes(whole.to_bytes()) == whole
    assert pickle.loads(pickle.dumps(whole)) == whole
    assert copy.copy(whole) == copy.deepcopy(whole) == whole.copy() == whole


@over_streams
def test_bytes_know_their_end(cls: str, x: Float32) -> None:
    data = made(cls, x).to_bytes()
    summary = type(CLASSES[cls][0]())
    for cut in {0, 1, 4, 8, len(data) // 2, len(data) - 1}:
        with pytest.raises(SummaryError):
            summary.from_bytes(data[:cut])
    with pytest.raises(SummaryError):
        summary.from_bytes(data + b"\0")


@pytest.mark.parametrize("cls", CLASSES)
def test_any_damaged_byte_is_noticed(cls: str) -> None:
    data = made(cls, stream("lognormal")).to_bytes()
    summary = type(CLASSES[cls][0]())
    for at in {*range(12), *range(12, len(data), max(1, len(data) // 50))}:
        damaged = bytearray(data)
        damaged[at] ^= 0x55
        with pytest.raises(SummaryError):
            summary.from_bytes(bytes(damaged))


@pytest.mark.parametrize("cls", CLASSES)
def test_other_parameters_and_classes_are_refused(cls: str) -> None:
    make, _, other = CLASSES[cls]
    with pytest.raises(SummaryError):
        make().merge(other)
    with pytest.raises(SummaryError):
        type(other).from_bytes(make().to_bytes()).merge(other)
    with pytest.raises(SummaryError):
        make().merge(3)  # type: ignore[type-var]


@over_streams
def test_absorb_is_merge_in_place(cls: str, x: Float32) -> None:
    a, b, _ = thirds(cls, x)
    merged, before = a + b, copy.deepcopy(b)
    a.absorb(b)
    assert a == merged
    assert b == before


@pytest.mark.parametrize("cls", CLASSES)
def test_state_does_not_grow(cls: str) -> None:
    assert made(cls, stream("lognormal")).nbytes == CLASSES[cls][0]().nbytes
