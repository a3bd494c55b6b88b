"""A growing log read in pieces is the log read whole; what cannot be followed says so; Ctrl-C ends with one line."""

from __future__ import annotations

import io
import json
import os
import random
import signal
import sys
import time
from pathlib import Path

import pytest

from tests.support import running
from tests.traces.make import chat, steps, write_lines
from tests.traces.samples import RECORDS
from trimtab.errors import TraceError
from trimtab.report.terminal import progress
from trimtab.report.traces.live_diagnosis import follow_traces
from trimtab.traces.core.read_report import ReadReport
from trimtab.traces.files.lines import iter_lines
from trimtab.traces.files.tail import GONE, REPLACED
from trimtab.traces.follow import FOLLOWED, SESSIONS, Follower
from trimtab.traces.read import read_episodes
from trimtab.traces.table.build import tabulate
from trimtab.traces.table.types import COUNTS


def _mixed(rng: random.Random, episodes: int) -> bytes:
    waiting = [steps(f"e{i}", calls=rng.randint(0, 4), reward=float(i % 2)) for i in range(episodes)]
    lines = []
    while waiting := [rows for rows in waiting if rows]:
        lines.append(json.dumps(rng.choice(waiting[:3]).pop(0)).encode())
        if rng.random() < 0.1:
            lines.append(rng.choice([b"{oops", b"", b"  ", b"[1]", b'{"type": "x"}', b"\xff"]))
    return b"\n".join(lines) + b"\n"


@pytest.mark.parametrize("seed", range(5))
def test_pieces_of_any_size_give_the_table_of_the_whole(tmp_path, seed):
    rng, path = random.Random(seed), tmp_path / "log.jsonl"
    whole = (b"\xef\xbb\xbf" if seed == 0 else b"") + _mixed(rng, 30)
    path.write_bytes(b"")
    report = ReadReport()
    follower, at, ended = Follower(path, report), 0, 0
    while at < len(whole):
        size = rng.choice([1, 7, 300, 5_000])
        with path.open("ab") as file:
            file.write(whole[at : at + size])
        at += size
        ended += follower.poll()
    episodes, plain = read_episodes([path])
    table, expected = follower.table(), tabulate(episodes)
    order = [
        expected.ids.index(name) for name in table.ids
    ]  # in the order of their ends, not of their beginnings
    assert sorted(table.ids) == sorted(expected.ids)
    assert ended == report.num_episodes == 30
    for name in COUNTS:
        assert table.counts[name].tolist() == expected.counts[name][order].tolist(), name
    assert (report.num_lines, report.num_malformed) == (plain.num_lines, plain.num_malformed)
    assert sorted(report.problems) == sorted(plain.problems)
    assert follower.open == {}


def test_an_open_episode_is_not_counted_and_a_late_line_begins_another(tmp_path):
    path = write_lines(tmp_path / "s.jsonl", steps("a") + steps("b")[:-1])
    follower = Follower(path, ReadReport())
    assert (follower.poll(), list(follower.open)) == (1, ["b"])
    with path.open("a") as file:
        file.write(
            json.dumps(steps("b")[-1]) + "\n" + json.dumps({"episode_id": "a", "type": "other"}) + "\n"
        )
    assert (follower.poll(), list(follower.open)) == (1, ["a"])
    assert follower.table().ids == ["a", "b"]


def test_a_file_written_anew_is_read_again_and_copies_are_dropped(tmp_path):
    path = write_lines(tmp_path / "s.jsonl", steps("a") + steps("b"))
    follower = Follower(path, ReadReport())
    assert follower.poll() == 2
    write_lines(path, steps("b"))
    assert follower.poll() == 0
    write_lines(tmp_path / "new.jsonl", steps("a") + steps("b") + steps("c"))
    os.replace(tmp_path / "new.jsonl", path)
    assert follower.poll() == 1
    assert follower.report.notes["file cut short or replaced, read from its start"] == 2


def _chats(*names):
    return b"".join(
        json.dumps({"id": name, "messages": chat(result=name)}).encode() + b"\n" for name in names
    )


def _rotate(path, new):
    os.rename(path, path.with_suffix(".1"))
    path.write_bytes(new)


def _delete(path, new):
    path.unlink()
    path.write_bytes(new)


def _replace(path, new):
    path.with_suffix(".new").write_bytes(new)
    os.replace(path.with_suffix(".new"), path)


@pytest.mark.parametrize("change", [_rotate, _delete, _replace, lambda path, new: path.write_bytes(new)])
def test_a_rotated_deleted_or_overwritten_file_is_read_on_from_its_start(tmp_path, change):
    """Also where the new content is longer than what was read."""
    path = tmp_path / "log.jsonl"
    path.write_bytes(_chats("a", "b"))
    follower = Follower(path, ReadReport())
    assert follower.poll() == 2
    change(path, _chats("c", "d", "e", "f"))
    assert follower.poll() == 4
    change(path, _chats("g"))
    with path.open("ab") as file:
        file.write(_chats("h"))
    assert follower.poll() == 2
    assert follower.table().ids == list("abcdefgh")
    assert follower.report.notes == {REPLACED: 2}
    assert follower.report.num_malformed == 0


def test_lines_written_just_before_a_rotation_are_read(tmp_path):
    path = tmp_path / "log.jsonl"
    path.write_bytes(_chats("a"))
    follower = Follower(path, ReadReport())
    assert follower.poll() == 1
    old = path.open("ab")
    old.write(_chats("b"))
    old.flush()
    _rotate(path, b"")  # the writer has still the old one
    assert follower.poll() == 1
    old.write(_chats("c") + _chats("d")[:-1] + b"\n" + _chats("cut")[:40])
    old.close()
    path.write_bytes(_chats("e"))
    assert follower.poll() == 3
    assert follower.table().ids == list("abcde")
    assert (follower.report.num_malformed, follower.report.notes) == (1, {REPLACED: 1})


def test_a_file_that_is_gone_is_waited_for(tmp_path):
    path = tmp_path / "log.jsonl"
    path.write_bytes(_chats("a"))
    follower = Follower(path, ReadReport())
    follower.poll()
    for name in "bc":
        path.unlink()
        assert [follower.poll() for _ in range(3)] == [0, 0, 0]
        path.write_bytes(_chats(name))
        assert follower.poll() == 1
    assert follower.report.notes == {GONE: 2, REPLACED: 2}


def test_the_command_goes_on_over_a_rotation_with_a_gap(tmp_path):
    path = write_lines(tmp_path / "s.jsonl", [row for i in range(25) for row in steps(f"e{i}", reward=i % 2)])
    command = [sys.executable, "-m", "trimtab", "traces", "diagnose", str(path), "--follow", "--every", "0.05", "--json"]  # fmt: skip
    with running(command) as child:
        first = json.loads(child.stdout.readline())
        os.rename(path, tmp_path / "s.jsonl.1")
        time.sleep(0.5)
        write_lines(path, steps("new"))
        second = json.loads(child.stdout.readline())
        child.send_signal(signal.SIGINT)
        child.communicate(timeout=60)
    assert [first["num_episodes"], second["num_episodes"], child.returncode] == [25, 26, 0]
    assert second["notes"] == {GONE: 1, REPLACED: 1}


@pytest.mark.parametrize("name", [name for name in FOLLOWED if name != "steps"])
def test_each_format_of_one_episode_a_line(tmp_path, name):
    path = write_lines(tmp_path / "log.jsonl", RECORDS[name])
    follower = Follower(path, ReadReport())
    assert follower.poll() == len(read_episodes([path])[0]) >= 1


CODING_AGENTS = Path(__file__).parent / "fixtures" / "coding_agents"
GROWING = {
    "claude-code": [CODING_AGENTS / "claude-errors.jsonl", CODING_AGENTS / "claude-stream.jsonl"],
    "codex": [CODING_AGENTS / "rollout-main.jsonl"],
    "codex-exec": [CODING_AGENTS / "codex-exec.jsonl"],
}


def _facts(table):
    return table.ids, {name: table.counts[name].tolist() for name in COUNTS}


@pytest.mark.parametrize("name", SESSIONS)
def test_a_session_that_grows_is_at_each_moment_the_session_read_whole(tmp_path, name):
    for source in GROWING[name]:
        text, path, rng = source.read_bytes(), tmp_path / source.name, random.Random(1)
        path.write_bytes(b"")
        follower, at, lines = Follower(path, ReadReport()), 0, 0
        while at < len(text):
            at += rng.choice([300, 3_000])
            path.write_bytes(text[:at])
            lines += follower.poll()
            whole = path.with_suffix(".whole")
            whole.write_bytes(text[: text.rindex(b"\n", 0, at) + 1] if b"\n" in text[:at] else b"")
            if lines and (episodes := read_episodes([whole])[0]):
                assert _facts(follower.table()) == _facts(tabulate(episodes))
        _, plain = read_episodes([path])
        assert lines == follower.report.num_lines == plain.num_lines
        assert (follower.report.notes, follower.report.num_episodes) == (plain.notes, plain.num_episodes)
        assert follower.poll() == 0


def test_a_session_written_anew_is_read_alone(tmp_path):
    path, (source, other) = tmp_path / "a.jsonl", GROWING["claude-code"]
    path.write_bytes(source.read_bytes() + b"{oops\n")
    follower = Follower(path, ReadReport())
    follower.poll()
    _replace(path, other.read_bytes())
    assert follower.poll() == len(other.read_bytes().splitlines())
    assert _facts(follower.table()) == _facts(tabulate(read_episodes([other])[0]))
    assert (follower.report.num_malformed, follower.report.notes[REPLACED]) == (1, 1)


def test_of_a_session_calls_and_lines_are_shown_once_somebody_spoke(tmp_path):
    text = GROWING["codex"][0].read_bytes()
    path, states, rest = tmp_path / "a.jsonl", [], [text]
    path.write_bytes(text.splitlines(keepends=True)[0].replace(b'"base_instructions"', b'"x"'))

    def more(_):
        if not rest:
            raise KeyboardInterrupt
        path.write_bytes(rest.pop())

    with pytest.raises(KeyboardInterrupt):
        states.extend(follow_traces(path, sleep=more))
    (state,) = states
    assert f"1 episode, 10 calls (+{state.new} lines);" in state.lines()[0]
    assert any("6 calls failed: exec_command 3 of 6, apply_patch 1 of 2" in line for line in state.lines())


def test_a_long_line_is_passed_over_whatever_its_pieces(tmp_path):
    path, report = tmp_path / "log.jsonl", ReadReport()
    path.write_bytes(b"")
    follower = Follower(path, report, max_bytes=2_000)
    for piece in (
        b"x" * 1_500,
        b"x" * 1_500,
        b"x" * 1_500 + b"\n" + json.dumps({"id": "e", "messages": chat()}).encode() + b"\n",
    ):
        with path.open("ab") as file:
            file.write(piece)
        follower.poll()
    assert follower.table().ids == ["e"]
    assert [(p.line, p.reason) for p in report.problems] == [(1, "line longer than 2,000 bytes")]


def test_what_cannot_be_followed_says_why(tmp_path):
    spans = write_lines(tmp_path / "o.jsonl", RECORDS["otlp"])
    odd = write_lines(tmp_path / "odd.jsonl", [{"a": i} for i in range(60)])
    packed = tmp_path / "p.gz"
    packed.write_bytes(b"\x1f\x8b123")
    array = tmp_path / "a.json"
    array.write_text("[\n" + json.dumps({"task_id": 0, "reward": 1, "traj": chat()}))
    cases = (
        (spans, "otlp; it can"),
        (odd, "no format we know"),
        (packed, "compressed"),
        (array, "is one JSON array"),
    )
    for path, why in cases:
        with pytest.raises(TraceError, match=why):
            Follower(path, ReadReport()).poll()
    for path in ("-", tmp_path, tmp_path / "nowhere"):
        with pytest.raises(TraceError, match="needs one file"):
            Follower(path, ReadReport())
    with pytest.raises(TraceError, match="cannot read the format 'otlp'"):
        Follower(spans, ReadReport(), "otlp")


def test_a_diagnosis_comes_only_when_episodes_ended_and_the_whole_text_when_findings_change(tmp_path):
    path = write_lines(
        tmp_path / "m.jsonl", [{"id": str(i), "messages": chat(), "reward": i % 2} for i in range(30)]
    )
    states, pauses = [], []

    def more(seconds):
        pauses.append(seconds)
        if len(pauses) == 3:
            with path.open("a") as file:
                file.writelines(
                    json.dumps({"id": f"n{i}", "messages": chat(), "reward": i % 2}) + "\n" for i in range(9)
                )
        if len(pauses) == 5:
            with path.open("a") as file:
                file.write(json.dumps({"id": "nan", "messages": chat(), "reward": float("nan")}) + "\n")
        if len(pauses) == 7:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        states.extend(follow_traces(path, every=0.01, sleep=more))
    assert [(s.new, s.judged.table.num_episodes, s.changed) for s in states] == [
        (30, 30, True),
        (9, 39, False),
        (1, 40, True),
    ]
    assert [s.judged.verdict.word for s in states] == ["healthy", "healthy", "alarms"]
    assert [len(s.lines()) == 1 for s in states] == [False, True, False]
    assert states[1].lines()[0].endswith("HEALTHY: 39 episodes (+9), 0 open; no rule fired")
    assert "nan_rewards" in states[2].lines()[0]


def test_what_nothing_reads_is_noted_once_however_long_the_log(tmp_path):
    path = tmp_path / "s.jsonl"
    report, ended = ReadReport(), 0
    path.touch()
    follower = Follower(path, report)
    for i in range(150):
        with path.open("a") as file:
            file.writelines(json.dumps({**row, f"k{i}": 1, "run": 1}) + "\n" for row in steps(f"e{i}"))
        ended += follower.poll()
        assert len(report.notes) == 1
    assert ended == 150
    shown = "run, k0, k1, k10, k11, k12, k13, k14"  # 71 episodes of seven steps, and three steps of another
    note = f"steps with fields that nothing reads, of a file's first 500 lines: {shown} and 65 more"
    assert report.notes == {note: 500}


@pytest.mark.parametrize("flags", [[], ["--json"]])
def test_ctrl_c_ends_the_command_with_one_line(tmp_path, flags):
    path = write_lines(
        tmp_path / "s.jsonl", [row for i in range(25) for row in steps(f"e{i}", reward=float(i % 2))]
    )
    command = [
        sys.executable,
        "-m",
        "trimtab",
        "traces",
        "diagnose",
        str(path),
        "--follow",
        "--every",
        "0.05",
        *flags,
    ]
    with running(command) as child:
        first = child.stdout.readline()
        with path.open("a") as file:
            file.writelines(json.dumps(row) + "\n" for row in steps("new"))
        second = child.stdout.readline() if flags else ""
        time.sleep(0.1)
        child.send_signal(signal.SIGINT)
        rest, error = child.communicate(timeout=60)
    assert error.count("\n") == 1
    assert error.startswith("stopped: 2")
    assert child.returncode == 0
    if flags:
        assert [json.loads(line)["num_episodes"] for line in (first, second)] == [25, 26]
    else:
        assert "HEALTHY: 25 episodes (+25), 0 open" in first
        assert "Traceback" not in rest


class _Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_progress_adds_up_to_the_bytes_and_is_drawn_on_terminals_only(tmp_path, monkeypatch):
    path = write_lines(tmp_path / "m.jsonl", [{"id": str(i), "messages": chat()} for i in range(20_000)])
    seen: list[int] = []
    report = ReadReport(progress=seen.append)
    assert sum(1 for _ in iter_lines(str(path), report)) == 20_000
    assert len(seen) > 3
    assert sum(seen) == path.stat().st_size
    screen = _Terminal()
    monkeypatch.setattr(sys, "stderr", screen)
    with progress.reading_bar([path]) as advance:
        advance(path.stat().st_size)
        time.sleep(0.3)
    assert "reading" in screen.getvalue()
    with progress.reading_bar([path], wanted=False) as advance:
        assert advance is None
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    with progress.reading_bar([path]) as advance:
        assert advance is None
