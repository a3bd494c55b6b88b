"""Whatever a loop gives the writer is read back, or refused at once by its field's name; no exception of the loop is masked."""

from __future__ import annotations

import dataclasses
import enum
import json
import math
from datetime import datetime, timedelta, timezone
from decimal import Decimal
from pathlib import Path
from types import SimpleNamespace
from uuid import UUID

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trimtab.errors import TraceError
from trimtab.traces.core.episode import Call, Episode, Turn
from trimtab.traces.native.episode_writer import TraceWriter
from trimtab.traces.read import read_episodes


def _logged(tmp_path, loop, id="e", **fields):
    """The episode that `loop` logged, as it is read back."""
    path = tmp_path / "log.jsonl"
    path.unlink(missing_ok=True)
    with TraceWriter(path) as log, log.episode(id, **fields) as e:
        loop(e)
    (found,), report = read_episodes([path], strict=True)
    assert report.num_malformed == 0
    return found


class Colour(enum.Enum):
    RED = "red"


@dataclasses.dataclass
class Point:
    x: int
    at: datetime


@pytest.mark.parametrize(
    ("given", "field", "want"),
    [
        ({"success": 1}, "success", True),
        ({"success": np.bool_(True)}, "success", True),
        ({"success": "false"}, "success", False),
        ({"reward": True}, "reward", 1.0),
        ({"reward": "0.5"}, "reward", 0.5),
        ({"reward": np.float64(0.5)}, "reward", 0.5),
        ({"reward": np.float32(0.5)}, "reward", 0.5),
        ({"reward": np.array([0.5])}, "reward", 0.5),
        ({"reward": Decimal("0.5")}, "reward", 0.5),
        ({"reward": None}, "reward", None),
        ({"task": 7}, "task", "7"),
        ({"group": UUID(int=1)}, "group", "00000000-0000-0000-0000-000000000001"),
        ({"reward_parts": {Colour.RED: np.float64(1)}}, "reward_parts", {"red": 1.0}),
        ({"reward_parts": None}, "reward_parts", {}),
        ({"tokens": np.int32(9)}, "tokens", 9),
        ({"tokens": 9.0}, "tokens", 9),
        ({"policy_version": np.int64(3)}, "policy_version", 3),
        ({"policy_version": "main"}, "policy_version", "main"),
        ({"duration_s": timedelta(minutes=1)}, "duration_s", 60.0),
        ({"time": datetime(1970, 1, 1, 0, 1, tzinfo=timezone.utc)}, "time", 60.0),
        ({"extra": {"path": Path("a/b"), 2: {3}}}, "extra", {"path": "a/b", "2": [3]}),
        ({"tools": '[{"name": "f"}]'}, "tools", [{"type": "function", "function": {"name": "f"}}]),
    ],
)
def test_fields_of_an_episode_are_brought_to_what_the_reader_takes(tmp_path, given, field, want):
    found = _logged(tmp_path, lambda e: e.finish(**given))
    assert (getattr(found, field), type(getattr(found, field))) == (want, type(want))
    assert getattr(_logged(tmp_path, lambda e: None, **given), field) == want


@pytest.mark.parametrize(
    ("id", "want"), [(3, "3"), (np.int64(3), "3"), ("3", "3"), (UUID(int=3), str(UUID(int=3)))]
)
def test_ids_are_text(tmp_path, id, want):
    assert _logged(tmp_path, lambda e: None, id=id).id == want


@pytest.mark.parametrize(
    ("fields", "field", "want"),
    [
        ({"result": {"x": 1}}, "result", '{"x": 1}'),
        ({"result": np.arange(2)}, "result", "[0, 1]"),
        ({"result": b"ok"}, "result", "ok"),
        ({"result": [{"type": "text", "text": "4"}]}, "result", "4"),
        ({"error": True}, "error", "error"),
        ({"error": False}, "error", ""),
        ({"error": None}, "error", ""),
        ({"error": {}}, "error", ""),
        ({"error": {"m": 1}}, "error", '{"m": 1}'),
        ({"error": {"message": "no seats"}}, "error", "no seats"),
        ({"error": TimeoutError("5 s")}, "error", "TimeoutError: 5 s"),
        ({"latency_s": np.float32(0.5)}, "latency_s", 0.5),
        ({"id": 3}, "id", "3"),
        ({"arguments": {"a": np.int64(3)}}, "arguments", {"a": 3}),
        ({"arguments": {"a": np.array([[1.5]])}}, "arguments", {"a": [[1.5]]}),
        ({"arguments": {"when": datetime(2026, 1, 2), "where": Path("a/b")}}, "arguments", {"when": "2026-01-02T00:00:00", "where": "a/b"}),
        ({"arguments": Point(np.int8(1), datetime(2026, 1, 2))}, "arguments", {"x": 1, "at": "2026-01-02T00:00:00"}),
        ({"arguments": (1, {"b": {2}})}, "arguments", [1, {"b": [2]}]),
        ({"arguments": {None: Colour.RED, True: 1j}}, "arguments", {"null": "red", "true": "1j"}),
        ({"arguments": {"n": 10**30, "nan": -math.inf}}, "arguments", {"n": 10**30, "nan": -math.inf}),
        ({"arguments": {"n": 2**20_000}}, "arguments", {"n": hex(2**20_000)}),
    ],
)  # fmt: skip
def test_fields_of_a_call_are_brought_to_what_the_reader_takes(tmp_path, fields, field, want):
    found = _logged(tmp_path, lambda e: e.call("f", **fields))
    assert getattr(found.calls[0], field) == want


@pytest.mark.parametrize(
    "error", ["none", "False", " null ", "0", " \t", 0, 0.0, math.nan, np.float32("nan"), np.array([0]), np.bool_(False), Decimal(0), b"", [], {"message": False}, {"message": None, "code": 0}]
)  # fmt: skip
def test_an_error_that_says_that_there_was_none_is_none(tmp_path, error):
    calls = _logged(
        tmp_path,
        lambda e: (e.call("f", result="ok", error=error), e.message("user", "x", [Call(error=error)])),
    ).calls
    assert [call.error for call in calls] == ["", ""]


@pytest.mark.parametrize(
    ("error", "want"),
    [(True, "HTTP 503"), (1, "HTTP 503"), ("true", "HTTP 503"), (np.bool_(True), "HTTP 503"), ({"message": True}, "HTTP 503"), ("boom", "boom"),
     ({"message": "", "type": "Timeout"}, "Timeout"), ({"message": False, "code": 500}, '{"message": false, "code": 500}')],
)  # fmt: skip
def test_an_error_that_is_only_there_has_the_results_words(tmp_path, error, want):
    def loop(e):
        e.call("f", result="HTTP 503", error=error)
        e.call("g", error=True)
        e.call("g", error=True, result="none")

    first, second, third = _logged(tmp_path, loop).calls
    assert (first.error, first.error_from) == (want, "log")
    assert (second.error, second.error_from) == (third.error, third.error_from) == ("error", "log")


def test_a_result_that_starts_as_an_error_is_one_where_the_loop_does_not_say_otherwise(tmp_path):
    def loop(e):
        for fields in (
            {},
            {"error": None},
            {"error": "none"},
            {"error": False},
            {"error": "false"},
            {"error": "boom"},
        ):
            e.call("f", result="Error: HTTP 503", **fields)
        e.call("f", result={"error": "no seats"})
        e.call("f", result="4")
        e.call("f", result="Error: quoted", error_from="log")
        e.call("f")

    text, no, log = ("Error: HTTP 503", "text"), ("", ""), ("", "log")
    found = [(call.error, call.error_from) for call in _logged(tmp_path, loop).calls]
    assert found == [text, text, text, log, log, ("boom", "log"), ("no seats", "text"), no, log, no]


def test_tensors_are_taken_by_their_own_words(tmp_path):
    torch = pytest.importorskip("torch")

    def loop(e):
        ids = torch.tensor([5, 6])
        e.message(
            "assistant",
            "x",
            token_ids=ids,
            logprobs=torch.tensor([-0.5, -1.0], requires_grad=True),
            mask=ids > 5,
        )
        e.call(
            "f", {"t": torch.tensor(3), "none": torch.empty(2, device="meta")}, latency_s=torch.tensor(0.5)
        )
        e.finish(reward=torch.tensor([0.25]), success=torch.tensor(True), tokens=torch.tensor(2))

    found = _logged(tmp_path, loop)
    (turn,), (call,) = found.turns, found.calls
    assert (turn.token_ids, turn.logprobs, turn.mask) == ([5, 6], [-0.5, -1.0], [0, 1])
    assert (call.arguments["t"], call.latency_s) == (3, 0.5)
    assert "meta" in call.arguments["none"]
    assert (found.reward, found.success, found.tokens) == (0.25, True, 2)


@pytest.mark.parametrize(
    ("arguments", "want", "bad"),
    [
        ('{"x": 1}', {"x": 1}, None),
        (' {"x": {"y": [1]}} ', {"x": {"y": [1]}}, None),
        ('{"x": ', None, '{"x": '),
        ("weather in Paris", "weather in Paris", None),
        ("[1, 2]", "[1, 2]", None),
    ],
)
def test_arguments_that_are_an_objects_text_are_that_object(tmp_path, arguments, want, bad):
    call = _logged(tmp_path, lambda e: e.call("f", arguments, result="ok")).calls[0]
    assert (call.arguments, call.bad_arguments) == (want, bad)
    assert (call.error_from == "parse") == (bad is not None)
    assert call.error.startswith("arguments are") == (bad is not None)


def test_the_loops_own_error_wins_over_arguments_that_cannot_be_read(tmp_path):
    call = _logged(tmp_path, lambda e: e.call("f", "{", error="HTTP 503")).calls[0]
    assert (call.error, call.error_from, call.bad_arguments) == ("HTTP 503", "log", "{")


def test_a_call_after_an_answer_is_a_turn_of_its_own(tmp_path):
    """It may use what the answer said; in one turn with it, training data would show it as made before."""

    def loop(e):
        e.message("user", "Who wrote the newest book?")
        e.call("newest_book", {}, result='{"id": 7}')
        e.call("author_of", {"id": 7}, result="Ann")
        e.message("assistant", "I look twice.")
        e.call("a", {})
        e.call("b", {}, result="1")
        e.call("c", {}, result="2", parallel=True)
        e.call("d", {}, error="HTTP 503")
        e.call("e", {})

    turns = _logged(tmp_path, loop).turns[1:]
    assert [[call.name for call in turn.calls] for turn in turns] == [
        ["newest_book"], ["author_of"], ["a", "b", "c"], ["d"], ["e"],
    ]  # fmt: skip
    assert [turn.step for turn in turns] == [call.step for turn in turns for call in turn.calls[:1]]


def test_lists_of_a_turn_are_lists_of_numbers(tmp_path):
    def loop(e):
        e.message(
            "assistant", 4, token_ids=np.array([1, 2]), logprobs=(np.float32(-0.5), None), mask=[True, False]
        )
        e.message("user", None, token_ids=iter([1]), token_texts=[b"a"])

    first, second = _logged(tmp_path, loop).turns
    assert (first.content, first.token_ids, first.mask) == ("4", [1, 2], [1, 0])
    assert first.logprobs[0] == -0.5
    assert math.isnan(first.logprobs[1])
    assert (second.content, second.token_ids, second.token_texts) == (None, [1], ["a"])


def test_content_in_blocks_is_read_as_in_chat_logs(tmp_path):
    def loop(e):
        e.message("user", [{"type": "text", "text": "hi"}])
        e.message(
            "assistant",
            [
                {"type": "thinking", "thinking": "hm"},
                {"type": "text", "text": "I look."},
                {"type": "tool_use", "id": "t1", "name": "look", "input": {"at": np.int64(3)}},
            ],
            tokens=5,
        )
        e.message(
            "user", [{"type": "tool_result", "tool_use_id": "t1", "content": "Error: dark", "is_error": True}]
        )
        e.message("tool", [{"type": "text", "text": "late"}])
        e.message("user", [{"type": "tool_result", "tool_use_id": "t9", "content": "whose?"}])
        e.message("user", {"type": "text", "text": "no list"})

    found = _logged(tmp_path, loop)
    assert [(t.role, t.content, t.step) for t in found.turns] == [
        ("user", "hi", 0),
        ("assistant", "I look.", 1),
        ("tool", "late", 2),
        ("tool", "whose?", 3),
        ("user", '{"type": "text", "text": "no list"}', 4),
    ]
    assert (found.turns[1].reasoning, found.turns[1].tokens) == ("hm", 5)
    (call,) = found.calls
    assert (call.name, call.arguments, call.result, call.error, call.step) == (
        "look",
        {"at": 3},
        "Error: dark",
        "Error: dark",
        1,
    )


@pytest.mark.parametrize("role", ["tool", "function", "Tool", "user"])
def test_results_in_blocks_answer_the_open_calls_under_a_tools_role_too(tmp_path, role):
    def result(id, text, **more):
        return {"type": "tool_result", "tool_use_id": id, "content": text, **more}

    def loop(e):
        e.call("f", id="a")
        e.call("g", id="b")
        e.message(
            role, [result("b", "dark", is_error=True), result("a", [{"type": "text", "text": "Error: lit"}])]
        )
        e.call("h", id="c")
        e.message(role, [result("c", "4"), {"type": "text", "text": "late"}])
        e.message(role, [result("z", "whose?")])
        e.call("i", id="d")
        e.message(role, [result("d", "0", is_error=True)])

    found = _logged(tmp_path, loop)
    assert [(c.result, c.error, c.error_from) for c in found.calls] == [
        ("Error: lit", "Error: lit", "text"),
        ("dark", "dark", "log"),
        ("4", "", ""),
        ("0", "error", "log"),
    ]
    ours = "user" if role == "user" else "tool"
    assert [(t.role, t.content, t.step) for t in found.turns] == [
        ("assistant", None, 0),
        ("assistant", None, 1),
        (ours, "late", 2),
        ("tool", "whose?", 3),
        ("assistant", None, 4),
    ]


def test_roles_are_brought_to_ours_as_in_chat_logs(tmp_path):
    def loop(e):
        e.message("USER", "hi")
        e.message(" Assistant", [{"type": "text", "text": "I look."}])
        e.call("f", result="4")
        for role in ("human", "ai", "model", "Gpt", "System", "planner", "function"):
            e.message(role, "x")
        e.message("function_call", '{"name": "g", "arguments": {"q": 1}}')

    found = _logged(tmp_path, loop)
    assert [turn.role for turn in found.turns] == [
        "user", "assistant", "user", "assistant", "assistant", "assistant", "system", "planner", "tool", "assistant",
    ]  # fmt: skip
    assert [(c.name, c.arguments, c.step) for c in found.calls] == [("f", None, 1), ("g", {"q": 1}, 9)]
    assert found.turns[9].content is None


def test_a_call_that_is_answered_after_its_message_keeps_its_answer(tmp_path):
    def loop(e):
        call = Call(name="f", arguments={"p": Path("x")})
        e.message("assistant", None, [call])
        call.result = {"late": True}

    (call,) = _logged(tmp_path, loop).calls
    assert (call.arguments, call.result) == ({"p": "x"}, '{"late": true}')


REFUSED = {
    "reward must be a number, and is 'abc'": lambda e: e.finish(reward="abc"),
    r"reward must be a number, and is \[0.5\]": lambda e: e.finish(reward=[0.5]),
    "success must be true or false, and is 'maybe'": lambda e: e.finish(success="maybe"),
    "reward_parts.format must be a number": lambda e: e.finish(reward_parts={"format": "good"}),
    "reward_parts must be an object": lambda e: e.finish(reward_parts=[1]),
    "extra must be an object": lambda e: e.finish(extra=3),
    "tools must be a list of JSON objects": lambda e: e.finish(tools=[print]),
    "id must be text, and is None": lambda e: e.finish(id=None),
    "turns must be a list of Turn": lambda e: e.finish(turns=["hi"]),
    "tokens must be a whole number, and is 0.5": lambda e: e.message("user", "x", tokens=0.5),
    r"token_ids\[1\] must be a whole number, and is 'b'": lambda e: e.message(
        "user", "x", token_ids=[1, "b"]
    ),
    "token_ids must be a list of whole numbers": lambda e: e.message("user", "x", token_ids="12"),
    "calls must be a list of Call": lambda e: e.message("assistant", "x", [{"name": "f"}]),
    r"calls\[0\].latency_s must be a number": lambda e: e.message("assistant", "x", [Call(latency_s="slow")]),
    "latency_s must be a number, and is 'slow'": lambda e: e.call("f", latency_s="slow"),
    "time must be a time, and is 'soon'": lambda e: e.call("f", time="soon"),
    "a call has no field 'latency'": lambda e: e.call("f", latency=1),
    "a turn has no field 'token'": lambda e: e.message("user", "x", token=1),
}


@pytest.mark.parametrize("why", REFUSED)
def test_what_has_no_plain_meaning_is_refused_at_once_and_the_rest_is_written(tmp_path, why):
    def loop(e):
        e.message("user", "hi")
        with pytest.raises(TraceError, match=f"^{why}"):
            REFUSED[why](e)
        e.finish(reward=1.0)

    found = _logged(tmp_path, loop)
    assert ([t.content for t in found.turns], found.reward) == (["hi"], 1.0)


def test_an_episode_without_an_id_or_with_an_unknown_field_is_refused(tmp_path):
    path = tmp_path / "log.jsonl"
    for id, fields, why in (
        (None, {}, "id must be text"),
        ("e", {"tsk": 1}, "no field 'tsk'; put it into extra"),
    ):
        with TraceWriter(path) as log, pytest.raises(TraceError, match=why), log.episode(id, **fields):
            raise AssertionError("the block is not entered")
    with TraceWriter(path) as log, pytest.raises(TraceError, match=r"turns\[0\].calls\[0\].id must be text"):
        log.write(Episode(id="e", turns=[Turn(calls=[Call(id=np.array(None))])]))
    assert path.read_bytes() == b""


def test_what_the_block_raised_is_raised_on_where_its_episode_cannot_be_written(tmp_path):
    path = tmp_path / "log.jsonl"

    def loop(spoil):
        with TraceWriter(path) as log, log.episode("e") as e:
            e.message("user", "hi")
            spoil(log, e)
            raise ValueError("bug in the loop")

    for spoil in (lambda log, e: log.close(), lambda log, e: setattr(e.episode, "reward", "abc")):
        with pytest.raises(ValueError, match="bug in the loop") as raised:
            loop(spoil)
        assert "its episode is not in the log" in raised.value.__notes__[0]
    loop_ends = pytest.raises(ValueError, match="bug in the loop")
    with loop_ends:
        loop(lambda log, e: e.call("f", {"x": SimpleNamespace(a=1)}, result=np.float32(0.5)))
    (found,), report = read_episodes([path])
    assert (found.stop_reason, found.calls[0].result) == ("exception: ValueError", "0.5")
    assert report.num_malformed == 0


class Mute:
    def __str__(self):
        raise RuntimeError("no text")

    __repr__ = __str__


@dataclasses.dataclass(frozen=True)
class Sealed(Exception):  # refuses __notes__, and contextlib's __traceback__
    code: int = 7


@pytest.mark.parametrize(
    "spoil",
    [lambda e: e.episode.extra.update(x=Mute()), lambda e: setattr(e.episode, "reward", "abc"), lambda e: setattr(e, "episode", None)],
)  # fmt: skip
@pytest.mark.parametrize("kind", [ValueError, Sealed, KeyboardInterrupt, StopIteration])
def test_the_blocks_own_exception_wins_over_any_failure_of_the_log(tmp_path, spoil, kind):
    raised = kind()
    caught: BaseException | None = None
    with TraceWriter(tmp_path / "log.jsonl") as log:
        try:
            with log.episode("e") as e:
                spoil(e)
                raise raised
        except BaseException as error:
            caught = error
    assert caught is raised
    if kind is not Sealed:
        assert "its episode is not in the log" in caught.__notes__[0]


def test_a_value_that_has_no_text_is_refused_by_its_fields_name(tmp_path):
    def loop(e):
        for field, give in {
            "content": lambda: e.message("user", Mute()),
            "arguments": lambda: e.call("f", {"x": Mute()}),
            "result": lambda: e.call("f", result=Mute()),
            "error": lambda: e.call("f", error=Mute()),
            "reward": lambda: e.finish(reward=Mute()),
        }.items():
            with pytest.raises(TraceError, match=f"^{field} must be .* raises RuntimeError"):
                give()

    assert _logged(tmp_path, loop).turns == []
    refused = pytest.raises(TraceError, match=r"^extra must be an object")
    with TraceWriter(tmp_path / "late.jsonl") as log, refused, log.episode("e") as e:
        e.episode.extra["x"] = Mute()
    assert (tmp_path / "late.jsonl").read_bytes() == b""


def test_keys_of_one_text_lose_no_value(tmp_path):
    given = {1: 2, "1": 3, "1#2": 4, None: 5, "null": 6}
    (call,) = _logged(tmp_path, lambda e: e.call("f", given)).calls
    assert call.arguments == {"1": 2, "1#2": 3, "1#2#2": 4, "null": 5, "null#2": 6}


def test_what_contains_itself_or_is_too_deep_ends(tmp_path):
    ring: dict = {"k": 1}
    ring["self"] = [ring]
    deep: list = []
    for _ in range(100_000):
        deep = [deep]
    found = _logged(tmp_path, lambda e: (e.call("f", ring), e.call("g", deep), e.message("user", deep)))
    assert found.calls[0].arguments == {"k": 1, "self": ["[nested too deeply to be written]"]}
    assert "[nested too deeply to be written]" in json.dumps(found.calls[1].arguments)


class Odd:
    """Says of itself that it is a list, and is none."""

    def tolist(self):
        return self


_SCALARS = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), st.text(), st.binary(), st.complex_numbers(), st.decimals(), st.datetimes(),
    st.timedeltas(), st.uuids(), st.fractions(), st.sampled_from([Odd(), Colour.RED, Path("x"), print, Odd, np.datetime64("2026-01-01"), ...]),
    st.floats(width=32).map(np.float32), st.integers(-5, 5).map(np.int64), st.booleans().map(np.bool_),
    st.lists(st.floats(width=16), max_size=3).map(np.array), st.text(st.characters(categories=["Cs"])),
)  # fmt: skip
_KEYS = st.one_of(st.text(), st.integers(), st.none(), st.booleans(), st.tuples(st.integers(), st.text()))
_ODD = st.recursive(
    _SCALARS,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.lists(inner, max_size=3).map(tuple)
        | st.dictionaries(_KEYS, inner, max_size=4)
        | st.frozensets(st.integers() | st.text(), max_size=3)
        | st.fixed_dictionaries(
            {"type": st.sampled_from(["text", "tool_use", "tool_result", 3]), "text": inner, "input": inner}
        )
    ),
    max_leaves=12,
)


def _names(kind):
    return st.dictionaries(st.sampled_from(kind.__struct_fields__), _ODD, max_size=5)


@given(
    id=_ODD,
    start=_names(Episode),
    steps=st.lists(st.tuples(st.sampled_from(["message", "call", "finish"]), _ODD, _ODD, _ODD), max_size=6),
)
@settings(derandomize=True, deadline=None, max_examples=400)
def test_whatever_is_given_is_read_back_or_refused(tmp_path_factory, id, start, steps):
    path = tmp_path_factory.mktemp("odd") / "log.jsonl"
    accepted = 0
    with TraceWriter(path) as log:
        try:
            with log.episode(id, **{k: v for k, v in start.items() if k != "id"}) as e:
                accepted = 1
                for what, name, value, other in steps:
                    try:
                        if what == "message":
                            e.message(name, value, tokens=other)
                        elif what == "call":
                            e.call(name, value, result=other, error=name, latency_s=other)
                        else:
                            e.finish(reward=value, success=other)
                    except TraceError:
                        continue
                kept = e.episode
        except TraceError:
            assert not accepted
    if accepted:
        (found,), report = read_episodes([path], strict=True)
        assert report.num_malformed == 0
        assert found.id == kept.id.encode("utf-16", "surrogatepass").decode("utf-16", "surrogatepass")
        assert len(found.turns) == len(kept.turns)
        assert len(found.calls) == len(kept.calls)


@pytest.mark.parametrize("kind", [Episode, Turn, Call])
@given(data=st.data())
@settings(derandomize=True, deadline=None, max_examples=150)
def test_every_field_is_read_back_or_refused(tmp_path_factory, kind, data):
    path = tmp_path_factory.mktemp("odd") / "log.jsonl"
    fields = data.draw(_names(kind))
    record = kind(**({"id": "e"} if kind is Episode else {}) | fields)
    whole = {Episode: lambda: record, Turn: lambda: Episode(id="e", turns=[record]), Call: lambda: Episode(id="e", turns=[Turn(calls=[record])])}  # fmt: skip
    refused = ""
    with TraceWriter(path) as log:
        try:
            log.write(whole[kind]())
        except TraceError as error:
            refused = str(error)
    if refused:
        assert any(name in refused for name in fields)
        assert path.read_bytes() == b""
    else:
        assert len(read_episodes([path], strict=True)[0]) == 1
