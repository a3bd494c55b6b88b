"""Many summaries as one run of bytes: all come back, any subset does, and bytes that are not one are refused."""

from __future__ import annotations

import numpy as np
import pytest

from tests.stats.distributions import stream
from tests.stats.test_merge_laws import CLASSES, made
from trimtab.errors import SummaryError
from trimtab.stats import LogSketch, Moments, Summary, bundle, unbundle


def everything() -> dict[str, Summary]:
    named = {
        f"{name} of {kind}": made(name, stream(kind)) for name in CLASSES for kind in ("lognormal", "empty")
    }
    return named | {"one more": Moments()}


def class_of(name: str) -> type[Summary] | None:
    summary = everything().get(name)
    return None if summary is None else type(summary)


def test_every_class_comes_back_whole_and_in_any_part():
    summaries = everything()
    data = bundle(summaries)
    assert unbundle(data, class_of) == summaries
    wanted = list(summaries)[1::3]
    assert unbundle(data, class_of, wanted) == {name: summaries[name] for name in wanted}
    assert unbundle(data, class_of, []) == unbundle(bundle({}), class_of) == {}


def test_values_that_are_not_finite_come_back():
    sketch = LogSketch()
    sketch.update(np.array([np.nan, np.inf, -np.inf, 1e30, -400.0], np.float32))
    back = unbundle(bundle({"x": sketch}), lambda _: LogSketch)["x"]
    assert back == sketch
    assert (back.num_nan, back.num_posinf, back.num_neginf, back.max) == (1, 1, 1, np.float32(1e30))


def test_bytes_that_are_no_bundle_are_refused():
    data = bundle({"a": made("LogSketch", stream("lognormal")), "b": Moments()})
    for cut in range(0, len(data), 7):
        with pytest.raises(SummaryError):
            unbundle(data[:cut], lambda name: {"a": LogSketch, "b": Moments}[name])
    with pytest.raises(SummaryError, match="too many"):
        unbundle(data + b"\0", lambda name: {"a": LogSketch, "b": Moments}[name])
    with pytest.raises(SummaryError, match="kind 'LS' named 'a'"):
        unbundle(data, lambda name: Moments)
    with pytest.raises(SummaryError, match="named 'b'"):
        unbundle(data, lambda name: {"a": LogSketch}.get(name))
    with pytest.raises(SummaryError, match="another shape"):
        unbundle(data.replace(b"1,5,-24,6", b"1,5,-23,6"), lambda name: {"a": LogSketch, "b": Moments}[name])
    with pytest.raises(SummaryError, match="separator"):
        bundle({"a\x1fb": Moments()})
