"""Alerts against a real HTTP server of this machine and real processes: once each, bounded, and without secrets."""

from __future__ import annotations

import json
import logging
import socket
import sys
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

import trimtab
from tests.support import cli, running, write_run
from trimtab.alerts import (
    Alert,
    AlertSink,
    CommandTarget,
    DeliveryError,
    DeliveryOptions,
    RunSentry,
    Webhook,
    slack_escape,
    slack_payload,
)
from trimtab.catalog import bound
from trimtab.errors import SinkError
from trimtab.sinks import IncidentChange, SinkRun, StepRecord

SECRET = "T0SECRET/B0SECRET/tokentokentoken"
FAST = DeliveryOptions(first_pause_s=0.01, max_pause_s=0.05)


class Receiver:
    """A server on the loopback that answers as its script says, one item a request, the last one for ever."""

    def __init__(self, *answers: Any) -> None:
        self.answers, self.bodies, self.times = list(answers), list[dict](), list[float]()
        self.release = threading.Event()
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                receiver.bodies.append(json.loads(body))
                receiver.times.append(time.monotonic())
                answer = receiver.answers.pop(0) if len(receiver.answers) > 1 else receiver.answers[0]
                if answer == "hang":
                    receiver.release.wait(30)
                elif answer == "close":
                    self.connection.shutdown(socket.SHUT_RDWR)
                elif isinstance(answer, tuple):
                    self.send_response(answer[0])
                    for name, value in answer[1].items():
                        self.send_header(name, value)
                    self.end_headers()
                else:
                    self.send_response(answer)
                    self.end_headers()

            def log_message(self, *_: object) -> None: ...

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        threading.Thread(
            target=self.server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True
        ).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server.server_port}/services/{SECRET}"


@pytest.fixture
def receive() -> Iterator[Any]:
    opened: list[Receiver] = []

    def make(*answers: Any) -> Receiver:
        opened.append(Receiver(*answers))
        return opened[-1]

    yield make
    for one in opened:
        one.release.set()
        one.server.shutdown()
        one.server.server_close()


def alert(
    identity: str = "run/rule/all/3", change: Any = "opened", severity: Any = "warning", **other: Any
) -> Alert:
    values: dict[str, Any] = {
        "run": "exp1", "run_id": "id", "step": 5, "since": 3, "slice": "post_tool", "cause": "stale rollouts",
        "evidence": ("age rose",), "rules": ("total_high",),
    }  # fmt: skip
    return Alert(identity, change, severity, **(values | other))


def sink_of(target: Any, tmp_path: Path, options: DeliveryOptions = FAST, **other: Any) -> AlertSink:
    sink = AlertSink(target, options, **other)
    sink.open(SinkRun("id", "exp1", tmp_path, {}))
    return sink


def push(sink: AlertSink, *alerts: Alert) -> None:
    sink.add(*alerts)
    sink.send()


# Delivery


def test_a_webhook_gets_the_incident_as_json(receive: Any, tmp_path: Path) -> None:
    server = receive(200)
    push(sink_of(Webhook(server.url), tmp_path), alert())
    assert server.bodies == [
        {
            "source": "trimtab", "version": 1, "kind": "incident", "identity": "run/rule/all/3", "change": "opened",
            "severity": "warning", "run": "exp1", "run_id": "id", "step": 5, "since": 3, "slice": "post_tool",
            "cause": "stale rollouts", "evidence": ["age rose"], "rules": ["total_high"],
            "title": "WARNING: incident opened in run exp1 (slice post_tool, since step 3, now at step 5)",
            "text": "Likely cause: stale rollouts (age rose). Rules: total_high.", "held_back": 0,
        }
    ]  # fmt: skip


@pytest.mark.parametrize("first", [500, 503, 429, "close"])
def test_what_may_pass_is_tried_again(receive: Any, tmp_path: Path, first: Any) -> None:
    server = receive(first, 200)
    sink = sink_of(Webhook(server.url), tmp_path)
    push(sink, alert())
    assert (len(server.bodies), sink.num_sent) == (2, 1)


def test_attempts_are_bounded_with_growing_pauses(receive: Any, tmp_path: Path) -> None:
    server = receive(500)
    sink = sink_of(
        Webhook(server.url), tmp_path, DeliveryOptions(attempts=3, first_pause_s=0.1, max_pause_s=5)
    )
    with pytest.raises(DeliveryError, match=r"^webhook answered 500$"):
        push(sink, alert())
    assert len(server.bodies) == 3
    pauses = [b - a for a, b in zip(server.times, server.times[1:], strict=False)]
    assert pauses[0] >= 0.1
    assert pauses[1] >= 0.2
    for _ in range(5):  # it waits for later calls, but not for ever
        try:
            sink.send()
        except DeliveryError:
            continue
    assert len(server.bodies) == 3 * 3


def test_retry_after_is_kept_and_capped(receive: Any, tmp_path: Path) -> None:
    server = receive((429, {"Retry-After": "1"}), (429, {"Retry-After": "86400"}), 200)
    push(
        sink_of(Webhook(server.url), tmp_path, DeliveryOptions(first_pause_s=0.01, max_pause_s=1.2)), alert()
    )
    first, second = (b - a for a, b in zip(server.times, server.times[1:], strict=False))
    assert first >= 1.0
    assert 1.2 <= second < 20


@pytest.mark.parametrize("answer", [400, 401, 403, 404, 410])
def test_what_cannot_pass_is_tried_once(receive: Any, tmp_path: Path, answer: int) -> None:
    server = receive(answer)
    sink = sink_of(Webhook(server.url), tmp_path)
    with pytest.raises(DeliveryError, match=f"webhook answered {answer}"):
        push(sink, alert())
    sink.send()
    assert len(server.bodies) == 1


def test_a_server_that_hangs_is_left_at_the_timeout(receive: Any, tmp_path: Path) -> None:
    server = receive("hang", 200)
    sink = sink_of(Webhook(server.url, timeout_s=0.2), tmp_path)
    push(sink, alert())
    assert (len(server.bodies), sink.num_sent) == (2, 1)


def test_a_redirect_is_not_followed(receive: Any, tmp_path: Path) -> None:
    other = receive(200)
    server = receive((302, {"Location": other.url}))
    with pytest.raises(DeliveryError, match="answered 302"):
        push(sink_of(Webhook(server.url), tmp_path), alert())
    assert not other.bodies


# Once each


def test_an_incident_is_sent_once_and_again_when_it_grows_worse_ends_or_returns(
    receive: Any, tmp_path: Path
) -> None:
    server = receive(200)
    sink = sink_of(Webhook(server.url), tmp_path)
    for change, severity in [
        ("opened", "warning"), ("opened", "warning"), ("worse", "critical"), ("worse", "critical"),
        ("resolved", "critical"), ("resolved", "critical"), ("reopened", "critical"),
    ]:  # fmt: skip
        push(sink, alert(change=change, severity=severity))
    assert [body["change"] for body in server.bodies] == ["opened", "worse", "resolved", "reopened"]


def test_a_second_process_sends_nothing_twice(receive: Any, tmp_path: Path) -> None:
    server = receive(200)
    push(sink_of(Webhook(server.url), tmp_path), alert())
    push(sink_of(Webhook(server.url), tmp_path), alert(), alert("run/other/all/9"))
    push(sink_of(Webhook(server.url), tmp_path), alert(severity="critical"))
    assert [(b["identity"], b["change"]) for b in server.bodies] == [
        ("run/rule/all/3", "opened"),
        ("run/other/all/9", "opened"),
        ("run/rule/all/3", "worse"),
    ]


def test_a_damaged_file_of_what_was_sent_is_begun_anew(receive: Any, tmp_path: Path) -> None:
    (tmp_path / "alerts.webhook.json").write_text('{"sent": {"run/rule/all/3": [1, 2, 3], "x": 7}}')
    server = receive(200)
    push(sink_of(Webhook(server.url), tmp_path), alert())
    assert len(server.bodies) == 1


def test_below_the_least_severity_nothing_is_sent_until_it_is_reached(receive: Any, tmp_path: Path) -> None:
    server = receive(200)
    sink = sink_of(Webhook(server.url), tmp_path, DeliveryOptions(min_severity="critical"))
    push(sink, alert())
    push(sink, alert(change="resolved"))
    assert not server.bodies
    push(sink, alert(change="worse", severity="critical"))
    assert [body["change"] for body in server.bodies] == ["opened"]


def test_the_rate_holds_back_and_the_gravest_goes_first(receive: Any, tmp_path: Path) -> None:
    server, now = receive(200), [0.0]
    options = DeliveryOptions(rate_per_hour=60, burst=2)
    sink = sink_of(Webhook(server.url), tmp_path, options, clock=lambda: now[0])
    many = [alert(f"run/rule/all/{i}", severity="critical" if i == 4 else "warning") for i in range(6)]
    push(sink, *many)
    sink.send()
    assert [(b["identity"][-1], b["held_back"]) for b in server.bodies] == [("4", 5), ("0", 4)]
    now[0] = 59.0
    sink.send()
    assert len(server.bodies) == 2
    now[0] = 61.0
    sink.send()
    assert [(b["identity"][-1], b["held_back"]) for b in server.bodies[2:]] == [("1", 3)]
    push(sink, alert("run/rule/all/2", change="resolved"))  # over before anybody heard of it
    sink.flush()
    assert [(b["identity"][-1], b["held_back"]) for b in server.bodies[3:]] == [("3", 1)]


# Commands


def script(tmp_path: Path, text: str) -> list[str]:
    path = tmp_path / "script.py"
    path.write_text(text)
    return [sys.executable, str(path)]


def test_a_command_gets_the_alert_on_its_input_and_no_shell_reads_its_arguments(tmp_path: Path) -> None:
    out = tmp_path / "out.json"
    argv = script(
        tmp_path, "import sys, json\njson.dump([sys.argv[1:], json.load(sys.stdin)], open(sys.argv[1], 'w'))"
    )
    hostile = "$(touch pwned); `x` && y"
    push(sink_of(CommandTarget([*argv, str(out), hostile]), tmp_path), alert(slice="$(touch pwned2)"))
    (first, second), payload = json.loads(out.read_text())
    assert (first, second) == (str(out), hostile)
    assert payload["slice"] == "$(touch pwned2)"
    assert payload["identity"] == "run/rule/all/3"


def test_a_command_that_fails_hangs_or_is_missing_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fails = script(tmp_path, "import sys\nopen('count.txt', 'a').write('x')\nsys.exit(3)")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(DeliveryError, match=r"ended with 3$"):
        push(sink_of(CommandTarget(fails), tmp_path), alert())
    assert (tmp_path / "count.txt").read_text() == "xxxx"
    with pytest.raises(
        DeliveryError, match=r"^command '/nowhere/notify' cannot start \(No such file or directory\)$"
    ):
        push(sink_of(CommandTarget(["/nowhere/notify"]), tmp_path), alert())
    child = tmp_path / "child.txt"
    hangs = script(
        tmp_path,
        "import subprocess, sys, time\np = subprocess.Popen(['sleep', '60'])\n"
        f"open({str(child)!r}, 'w').write(str(p.pid))\ntime.sleep(60)",
    )
    target = CommandTarget(hangs, timeout_s=3)
    with pytest.raises(DeliveryError, match="did not end in 3 s"):
        push(sink_of(target, tmp_path, DeliveryOptions(attempts=1)), alert())
    limit = time.monotonic() + 20
    while not is_gone(int(child.read_text())):  # its children end with it
        assert time.monotonic() < limit
        time.sleep(0.02)


def test_a_command_that_still_runs_when_the_run_is_closed_is_killed_with_its_group(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in ("sink_feed", "sink_worker"):
        monkeypatch.setattr(
            f"trimtab.sinks.{module}.bound",
            lambda name: 0.5 if name in ("sink_deadline", "sink_open") else bound(name),
        )
    pids = tmp_path / "pids.txt"
    target = CommandTarget(["sh", "-c", f"sleep 100 & echo $$ $! >> {pids}; wait"], timeout_s=100)
    with trimtab.open_run(tmp_path / "run", sinks=[AlertSink(target, FAST)]) as run:
        run.flush(0, {"loss": float("nan"), "reward": 1.0})
        limit = time.monotonic() + 30
        while not (pids.exists() and pids.read_text().endswith("\n")):
            assert time.monotonic() < limit
            time.sleep(0.01)
    limit = time.monotonic() + 20
    while not all(is_gone(int(pid)) for pid in pids.read_text().split()):
        assert time.monotonic() < limit
        time.sleep(0.02)
    assert len(pids.read_text().splitlines()) == 1  # none was started anew


def test_the_time_of_a_call_is_bounded_and_said(receive: Any, tmp_path: Path) -> None:
    server = receive("hang")
    options = DeliveryOptions(first_pause_s=0.0, max_call_s=10.05)  # a second attempt may last 10 s
    sink = sink_of(Webhook(server.url, timeout_s=0.2), tmp_path, options)
    with pytest.raises(
        DeliveryError, match=r"^webhook did not answer \(TimeoutError\); no more attempts within 10 s$"
    ):
        push(sink, alert())
    assert len(server.bodies) == 1


def is_gone(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] in "ZX"
    except OSError:
        return True


@pytest.mark.parametrize("argv", ["notify --urgent", [], [3]])
def test_a_command_is_a_list(argv: Any) -> None:
    with pytest.raises(SinkError, match="a command is a list of texts"):
        CommandTarget(argv)


# Slack and secrets


def test_hostile_text_neither_mentions_nor_links_nor_formats_in_slack() -> None:
    hostile = "<!channel> <@U1> @here & `code` <https://evil.example|click> https://evil.example"
    payload = slack_payload(alert(slice=hostile, cause="<!everyone>", evidence=("@channel\n*x*",)))
    (block,) = payload["blocks"]
    text = payload["text"] + block["text"]["text"]
    assert "<" not in text
    assert ">" not in text
    assert "@here" not in text
    assert "@channel" not in text
    assert "https://" not in text
    assert "`" not in text
    assert "&lt;!channel&gt; &lt;@\u200bU1&gt;" in text
    assert block["text"]["verbatim"] is True
    assert (payload["unfurl_links"], payload["unfurl_media"]) == (False, False)
    assert slack_escape("&lt;") == "&amp;lt;"


def test_long_texts_stay_under_slacks_limit() -> None:
    long = alert(
        slice="s" * 5_000,
        evidence=tuple("e" * 5_000 for _ in range(30)),
        rules=tuple("r" * 500 for _ in range(100)),
    )
    assert len(slack_payload(long)["blocks"][0]["text"]["text"]) < 3_000


def test_the_address_is_in_no_log_no_error_and_no_file(
    receive: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    server, dead = receive(500), "http://127.0.0.1:9/services/" + SECRET
    targets = [
        Webhook(server.url, format="slack"),
        Webhook(dead),
        Webhook(f"http://host name.invalid/{SECRET}"),
    ]
    for i, target in enumerate(targets):
        with pytest.raises(DeliveryError) as failure:
            push(sink_of(target, tmp_path, name=f"sink{i}"), alert())
        seen: BaseException | None = failure.value
        while seen is not None:
            assert SECRET not in repr(seen) + str(seen) + repr(vars(seen))
            seen = seen.__cause__ or seen.__context__
        assert SECRET not in repr(target)
    with trimtab.open_run(tmp_path / "run", sinks=[AlertSink(targets[0], FAST)]) as run:
        run.flush(0, {"loss": float("nan")})
    assert (
        json.loads((tmp_path / "run" / "end.r0.s0.jsonl").read_text())["detail"]["sinks"]["slack"]["failed"]
        == 1
    )
    for path in tmp_path.rglob("*"):
        assert path.is_dir() or SECRET.encode() not in path.read_bytes(), path
    assert SECRET not in caplog.text
    with pytest.raises(SinkError, match=r"address that begins with https:// or http:// \(not shown\)"):
        Webhook(f"ftp://{SECRET}")


# Runs


def test_a_live_run_alerts_while_it_trains(receive: Any, tmp_path: Path) -> None:
    server = receive(200)
    with trimtab.open_run(tmp_path / "run", strict=True, sinks=[AlertSink(Webhook(server.url), FAST)]) as run:
        run.flush(0, {"loss": 1.0})
        run.flush(1, {"loss": float("nan")})
        run.flush(2, {"loss": 1.0})
        limit = time.monotonic() + 60
        while not server.bodies:  # it comes before the run ends
            assert time.monotonic() < limit
            time.sleep(0.01)
    body = server.bodies[0]
    assert (body["change"], body["since"], body["rules"]) == ("opened", 1, ["nonfinite"])
    assert len({b["identity"] for b in server.bodies}) == 1


def test_the_same_incident_has_one_identity_in_the_run_and_in_a_second_process(
    receive: Any, tmp_path: Path
) -> None:
    server = receive(200)
    sink = AlertSink(Webhook(server.url), FAST)
    write_run(tmp_path / "run", steps=40, grow_from=25, growth=2.0, sinks=[sink])
    first = len(server.bodies)
    assert first >= 1
    sentry = RunSentry(tmp_path / "run", [AlertSink(Webhook(server.url), FAST)])
    sentry.check()
    assert sentry.ending == "finished"
    assert [body["change"] for body in server.bodies[first:]] in (
        [],
        ["worse"],
    )  # a replay may know more, never the same


def test_alert_tells_of_a_recorded_run_to_a_command(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run", steps=40, grow_from=25, growth=2.0)
    out = tmp_path / "out.jsonl"
    argv = script(tmp_path, f"import sys\nopen({str(out)!r}, 'a').write(sys.stdin.read() + chr(10))")
    done = cli("alert", folder, "--once", "--", *argv)
    lines = [json.loads(line) for line in out.read_text().splitlines()]
    assert len(lines) == 1
    assert (done.returncode, done.stdout) == (1, "1 alert sent; the run ended\n")
    assert len(lines) >= 1
    again = cli("alert", folder, "--once", "--", *argv)
    assert (again.returncode, again.stdout) == (0, "0 alerts sent; the run ended\n")


DIES = """
import os, sys, time, trimtab
run = trimtab.open_run(sys.argv[1])
for step in range(3):
    run.flush(step, {"reward": 1.0})
print("ready", flush=True)
if sys.argv[2] == "die":
    os._exit(9)
time.sleep(100)
"""


@pytest.mark.parametrize("how", ["die", "hang"])
def test_a_trainer_that_is_dead_or_silent_is_alerted(tmp_path: Path, how: str) -> None:
    folder, out = tmp_path / "run", tmp_path / "out.jsonl"
    argv = script(tmp_path, f"import sys\nopen({str(out)!r}, 'a').write(sys.stdin.read() + chr(10))")
    with running([sys.executable, "-c", DIES, str(folder), how], 100) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == "ready\n"
        if how == "die":
            child.wait(60)
        time.sleep(1.1)
        silence = "1" if how == "hang" else "1000"
        done = cli("alert", folder, "--once", "--silence", silence, "--", *argv)
        again = cli("alert", folder, "--once", "--silence", silence, "--", *argv)
    (body,) = [json.loads(line) for line in out.read_text().splitlines()]
    assert body["kind"] == "silent"
    assert body["severity"] == "critical"
    assert body["title"] == f"CRITICAL: run run {'has ended: vanished' if how == 'die' else 'is silent'}"
    assert "step 2" in body["text"] or "is 2" in body["text"]
    assert (done.returncode, again.returncode) == (1, 0)


def test_a_run_that_writes_again_after_silence_is_reported_once(tmp_path: Path) -> None:
    class Memory:
        name = "memory"

        def __init__(self) -> None:
            self.alerts: list[Alert] = []

        def deliver(self, alert: Alert) -> None:
            self.alerts.append(alert)

    memory = Memory()
    with trimtab.open_run(tmp_path / "run", strict=True) as run:
        run.flush(0, {"reward": 1.0})
        sentry = RunSentry(tmp_path / "run", [AlertSink(memory, FAST)], silence_s=0.2)
        sentry.check()
        assert not memory.alerts
        time.sleep(0.3)
        sentry.check()
        sentry.check()
        sentry.silence_s = 60.0
        run.flush(1, {"reward": 1.0})
        sentry.check()
        sentry.check()
    assert [(one.change, one.cause) for one in memory.alerts] == [
        ("opened", "is silent"),
        ("resolved", "writes again"),
    ]


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ((), "nobody to alert: give --slack-env, --webhook-env, or a command behind --"),
        (
            ("--slack-env", "NO_SUCH_VARIABLE"),
            "the environment variable NO_SUCH_VARIABLE is not set; it holds the webhook's URL",
        ),
        (("--min-severity", "loud", "--", "true"), "min_severity is warning or critical, not 'loud'"),
    ],
)
def test_bad_input_of_alert_is_one_line(tmp_path: Path, arguments: tuple[str, ...], text: str) -> None:
    folder = write_run(tmp_path / "run", steps=3)
    done = cli("alert", folder, *arguments)
    assert (done.returncode, done.stdout, done.stderr) == (2, "", f"trimtab: {text}\n")


def test_an_alert_that_cannot_be_delivered_is_said(
    tmp_path: Path, receive: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = write_run(tmp_path / "run", steps=40, grow_from=25, growth=2.0)
    monkeypatch.setenv("HOOK", receive(404).url)
    done = cli("alert", folder, "--once", "--webhook-env", "HOOK")
    assert (done.returncode, done.stdout) == (2, "0 alerts sent; the run ended\n")
    assert done.stderr == "trimtab: webhook answered 404\n"


def test_once_gives_up_on_a_server_that_hangs(
    tmp_path: Path, receive: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = write_run(tmp_path / "run", steps=40, grow_from=25, growth=2.0)
    server, short = receive("hang"), {"alert_timeout": 0.2, "alert_once": 0.3}
    for module in ("alerts.targets", "alerts.alert_sink", "cli.sink_commands"):
        monkeypatch.setattr(f"trimtab.{module}.bound", lambda name: short.get(name) or bound(name))
    monkeypatch.setenv("HOOK", server.url)
    done = cli("alert", folder, "--once", "--webhook-env", "HOOK")
    assert (done.returncode, done.stdout) == (2, "0 alerts sent; the run ended\n")
    assert done.stderr == "trimtab: webhook did not answer (TimeoutError); no more attempts within 0 s\n"
    assert len(server.bodies) == 1


def test_the_help_of_alert_shows_its_defaults() -> None:
    words = " ".join(cli("alert", "-h").stdout.split())
    assert "[default: 600.0]" in words


def test_a_record_of_a_sink_becomes_an_alert(tmp_path: Path, receive: Any) -> None:
    server = receive(200)
    sink = sink_of(Webhook(server.url), tmp_path)
    row = {
        "since": 3,
        "slice": "post\x1b[31m_tool\n",
        "severity": "critical",
        "cause": "",
        "evidence": [],
        "rules": ["a", "b"],
    }
    assert sink.write(StepRecord(7, 0.0, changes=(IncidentChange("opened", "x", 7, row),))) == 0
    assert server.bodies[0]["slice"] == "post [31m_tool "
    assert server.bodies[0]["text"] == "Rules: a, b."
