"""Rules of the user's own: the grammar, every error with its line, and alarms through the public paths."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import numpy as np
import pytest

import trimtab
from trimtab.catalog import bound
from trimtab.cli import main
from trimtab.detect.detectors.threshold import Threshold
from trimtab.detect.pipeline import Pipeline
from trimtab.detect.rules.all_rules import RULES
from trimtab.detect.rules.rule import Rule, split, threshold
from trimtab.detect.user_rules.detector_options import DETECTORS
from trimtab.detect.user_rules.load import header_config, load_rules, resolve, rules_of_header
from trimtab.errors import RuleError
from trimtab.report.html.run_payload import build_payload
from trimtab.report.run_diagnosis import diagnosis
from trimtab.report.run_view import load_view
from trimtab.types import Reading, Window

ROOT = Path(__file__).parents[2]
GOOD = """rules:
  - name: lr_high
    metric: learning_rate
    detector: threshold
    with: {direction: up, limit: 1e-3, confirm: 3}
    what: the learning rate is far too high
"""


def file_of(folder: Path, text: str) -> Path:
    path = folder / "rules.yaml"
    path.write_text(text, encoding="utf-8")
    return path


def one(**changes: str | None) -> str:
    """A good file of one rule with some of its lines changed or (None) left out; name is line 2."""
    lines = {
        "name": "mine",
        "metric": "kl",
        "detector": "threshold",
        "with": "{direction: up, limit: 2}",
    } | changes
    fields = [f"{key}: {value}" for key, value in lines.items() if value is not None]
    return "rules:\n  - " + "\n    ".join(fields) + "\n"


def test_the_documented_example_loads_and_holds_what_it_says(tmp_path) -> None:
    page = (ROOT / "docs" / "how-to" / "user-rules.md").read_text(encoding="utf-8")
    example = re.search(r"```yaml\n(.*?)```", page, re.S)
    assert example
    kl, tools, entropy = load_rules(file_of(tmp_path, example[1]))
    assert (kl.key, kl.slice, kl.severity, kl.weight) == ("aggregate/kl", "all", "critical", 1.0)
    made = kl.detector(1e4)
    assert isinstance(made, Threshold)
    assert (made.limit, made.sign, made.confirm, made.arl) == (2.0, 1, 5, 1e4)
    assert tools.covers("tool/search")
    assert (entropy.transform, entropy.weight, entropy.detector(1e4).sign) == ("log", 2.0, -1)
    assert [(e.key, e.sign) for e in entropy.suppressions] == [("aggregate/reward", 1)]
    for name, kind in DETECTORS.items():
        row = next(line for line in page.splitlines() if line.startswith("|") and f"`{name}`" in line)
        assert all(f"`{option}`" in row for option in kind.options), name


@pytest.mark.parametrize("name", DETECTORS)
def test_every_detector_is_made_with_its_options(tmp_path, name) -> None:
    needed = {"threshold": ", limit: 3", "excursion": ", factor: 4", "leap": ", min_frac: 0.5"}.get(name, "")
    (rule,) = load_rules(file_of(tmp_path, one(detector=name, **{"with": f"{{direction: up{needed}}}"})))
    detector = rule.detector(1e4)
    for step in range(300):
        detector.update(step, 1.0 + 0.01 * (step * 37 % 11))
    assert detector.sign == 1
    assert detector.arl == 1e4


BAD = {
    "unknown metric": (one(metric="kll"), 3, "metric", "aggregate/kl"),
    "unknown detector": (one(detector="treshold"), 4, "detector", "did you mean threshold"),
    "unknown field": (one(sevrity="info"), 6, "sevrity", "did you mean severity"),
    "missing field": (one(metric=None), 2, "metric", "is missing"),
    "built-in name": (one(name="kl_break"), 2, "name", "built-in"),
    "stream rule's name": (one(name="nonfinite"), 2, "name", "built-in"),
    "no identifier": (one(name="a-b"), 2, "name", "identifier"),
    "unknown option": (one(**{"with": "{direction: up, limt: 2}"}), 5, "with.limt", "did you mean limit"),
    "missing option": (one(**{"with": "{direction: up}"}), 5, "with.limit", "is missing"),
    "missing direction": (one(**{"with": "{limit: 2}"}), 5, "with.direction", "is missing"),
    "direction": (one(**{"with": "{direction: either, limit: 2}"}), 5, "with.direction", "known: up, down"),
    "text for a number": (one(**{"with": "{direction: up, limit: two}"}), 5, "with.limit", "a finite number"),
    "infinite": (one(**{"with": "{direction: up, limit: .inf}"}), 5, "with.limit", "finite"),
    "truth for a number": (one(**{"with": "{direction: up, limit: true}"}), 5, "with.limit", "a finite number"),
    "half a count": (one(**{"with": "{direction: up, limit: 2, confirm: 1.5}"}), 5, "with.confirm", "whole"),
    "out of range": (one(**{"with": "{direction: up, limit: 2, confirm: 0}"}), 5, "with.confirm", "a whole number >= 1"),
    "number for truth": (one(detector="change", **{"with": "{direction: up, lenient: 1}"}), 5, "with.lenient", "true or false"),
    "leap": (one(detector="leap", **{"with": "{direction: up}"}), 5, "with.min_effect", "above 0"),
    "factor": (one(detector="excursion", **{"with": "{direction: up, factor: 0.5}"}), 5, "with.factor", "more than 1"),
    "never judges": (one(detector="spike", **{"with": "{direction: up, memory: 20}"}), 5, "with.memory", "never judge"),
    "a share over 1": (one(metric="truncated_frac"), 5, "with.limit", "aggregate/truncated_frac is never above it, its values are 0 to 1; give less than 1"),
    "a share under 0": (one(metric="clip_frac", **{"with": "{direction: up, limit: -0.1}"}), 5, "with.limit", "always above it, its values are 0 to 1; give 0 or more"),
    "nothing is under 0": (one(metric="tool_calls", **{"with": "{direction: down, limit: 0}"}), 5, "with.limit", "never below it, its values are 0 or more; give more than 0"),
    "returns beyond its limit": (one(**{"with": "{direction: up, limit: 2, back: 3}"}), 5, "with.back", "3 lies above the limit (2)"),
    "returns beyond, down": (one(**{"with": "{direction: down, limit: 2, back: 1}"}), 5, "with.back", "1 lies below the limit (2)"),
    "more than it keeps": (one(detector="change", **{"with": "{direction: up, min_reference: 500}"}), 5, "with.min_reference", "more than the memory (256)"),
    "severity": (one(severity="bad"), 6, "severity", "known: info"),
    "weight": (one(weight="0"), 6, "weight", "> 0"),
    "transform": (one(transform="log"), 6, "transform", "use identity"),
    "floor without a log": (one(floor="0.1"), 6, "floor", "with `transform: log`"),
    "floor below 0": (one(detector="change", transform="log", floor="-1", **{"with": "{direction: up}"}), 7, "floor", ">= 0"),
    "slice of an aggregate": (one(slice="post_tool"), 6, "slice", "use all"),
    "unknown slice": (one(slice="posttool"), 6, "slice", "no slice"),
    "where a reading never is": (one(metric="tail_ratio/p95"), 2, "slice", "post_tool only"),
    "text": (one(what="5"), 6, "what", "quote it"),
    "excuse": (one(excused_by="[{metric: rewad, direction: up}]"), 6, "excused_by.metric", "aggregate/reward"),
    "excuse's field": (one(excused_by="[{metric: reward}]"), 6, "excused_by.direction", "is missing"),
    "given twice": (one() + one().removeprefix("rules:\n"), 6, "name", "first in line 2"),
    "key twice": (one() + "    metric: kl\n", 6, "metric", "first in line 3"),
    "no list": ("rules: 5\n", 1, "rules", "a list"),
    "another top field": ("rule:\n  - a\n", 1, "rule", "did you mean rules"),
    "empty": ("# nothing\n", 1, "rules", "empty"),
    "broken yaml": ("rules:\n  - name: [a\n    metric: kl\n", 3, "yaml", "check"),
    "a tag": (one(what="!!python/object/apply:os.system [ls]"), 6, "what", "quote it"),
    "a scalar tag": (one(what="!!binary aGk="), 6, "yaml", "tag"),
    "an anchor": ("rules:\n  - &a {name: x, metric: kl, detector: spike, with: {direction: up}}\n  - *a\n", 2, "yaml", "anchors"),
}  # fmt: skip


@pytest.mark.parametrize("case", BAD)
def test_each_error_is_one_line_with_file_line_and_field(tmp_path, case) -> None:
    text, line, field, says = BAD[case]
    path = file_of(tmp_path, text)
    with pytest.raises(RuleError) as caught:
        load_rules(path)
    message = str(caught.value)
    assert message.startswith(f"{path}:{line}: {field}: "), message
    assert says in message
    assert "\n" not in message


def test_limits_at_which_a_reading_can_be_on_either_side_are_taken(tmp_path) -> None:
    """The least possible value from above, the largest from below; and what has no range: an explained variance may be negative."""
    for metric, options in (
        ("truncated_frac", "{direction: up, limit: 0, back: 0}"),
        ("truncated_frac", "{direction: down, limit: 1}"),
        ("tool_calls", "{direction: up, limit: 5, back: 4}"),
        ("value_explained_variance", "{direction: down, limit: -0.5, back: 0}"),
        ("drift/shift_tail_mass", "{direction: down, limit: -0.2}"),
    ):
        (rule,) = load_rules(file_of(tmp_path, one(metric=metric, **{"with": options})))
        assert isinstance(rule.detector(1e4), Threshold)
    kept = "{direction: up, memory: 60, min_reference: 60}"
    load_rules(file_of(tmp_path, one(detector="change", **{"with": kept})))


def test_a_missing_file_and_a_wrong_object_are_refused(tmp_path) -> None:
    with pytest.raises(RuleError, match="cannot be read"):
        load_rules(tmp_path / "none.yaml")
    with pytest.raises(RuleError, match="is not a Rule"):
        resolve([{"name": "x"}])
    with pytest.raises(RuleError, match="taken"):
        resolve([RULES[0]])


def python_rule(name: str = "lr_python") -> Rule:
    return Rule(
        name, "aggregate/learning_rate", family="user", detector=lambda arl: Threshold(limit=1e-3, confirm=3, arl=arl),
        what="said in Python", why="why", advice="do", reference="me",
    )  # fmt: skip


def write(folder: Path, rules, steps: int = 80) -> Path:
    """A run without tokens: a window is a step, the rate is wrong from step 40 on, so three in a row end at 42."""
    rng = np.random.default_rng(0)
    with trimtab.open_run(folder, strict=True, rules=rules) as run:
        for step in range(steps):
            rate = 1e-4 if step < 40 else 1e-2
            run.flush(step, {"reward": 0.5 + 0.01 * rng.normal(), "learning_rate": rate})
    return folder


def test_a_rule_of_a_file_fires_live_and_every_view_shows_its_words(tmp_path) -> None:
    path = file_of(tmp_path, GOOD)
    view = load_view(write(tmp_path / "run", path))
    mine = [a for a in view.alarms if a.rule == "lr_high"]
    assert [(a.step, a.cleared) for a in mine] == [(42, None)]
    assert len(view.alarms) == len({(a.rule, a.slice, a.step) for a in view.alarms})
    shown = next(a for a in diagnosis(view)["alarms"] if a["rule"] == "lr_high")
    assert shown["what"].startswith("the learning rate is far too high: 0.01")
    assert shown["reference"] == "user rule, rules.yaml"
    said = diagnosis(view)
    assert (said["left_out"], said["num_clipped"]) == ({}, {})
    run = build_payload([view])["runs"][0]
    assert ["user rules", "lr_high"] in run["facts"]
    assert any(a["rule"] == "lr_high" and "far too high" in a["what"] for a in run["alarms"])
    for lost in (tmp_path / "run").glob("alarms.*"):  # the header's rules are judged again
        lost.write_text("")
    assert [a.step for a in load_view(tmp_path / "run").alarms if a.rule == "lr_high"] == [42]


def test_rules_in_python_judge_live_and_their_recorded_alarms_are_shown(tmp_path) -> None:
    path = file_of(tmp_path, GOOD)
    view = load_view(write(tmp_path / "run", [python_rule(), *load_rules(path)]))
    found = {a["rule"]: a["what"] for a in diagnosis(view)["alarms"]}
    assert found["lr_python"].startswith("lr_python")
    assert found["lr_high"].startswith("the learning rate")
    live = split((*RULES, *load_rules(path), python_rule()), bound("budget"))
    assert view.pipeline.budgets == pytest.approx({k: v for k, v in live.items() if k != "lr_python"})


def cli(monkeypatch, capsys, *arguments) -> tuple[int, str, str]:
    monkeypatch.setattr(sys, "argv", ["trimtab", "diagnose", *map(str, arguments)])
    with pytest.raises(SystemExit) as left:
        main()
    out, err = capsys.readouterr()
    return int(left.value.code or 0), out, err


def test_diagnose_takes_rules_for_logs_and_for_run_folders(tmp_path, monkeypatch, capsys) -> None:
    path = file_of(tmp_path, GOOD)
    rows = [{"step": t, "reward": 0.5, "learning_rate": 1e-4 if t < 40 else 1e-2} for t in range(60)]
    log = tmp_path / "log.jsonl"
    log.write_text("".join(json.dumps(row) + "\n" for row in rows))
    folders = write(tmp_path / "plain", ()), write(tmp_path / "same", path)
    for source in (log, *folders):  # a run without tokens is judged step by step, as a log is
        code, out, _ = cli(monkeypatch, capsys, source, "--rules", path)
        assert code == 1
        assert out.count("step 42 lr_high:") == 1
        assert "the learning rate is far too high" in out
    path.write_text(GOOD.replace("1e-3", "1e-5"))
    code, _, err = cli(monkeypatch, capsys, tmp_path / "same", "--rules", path)
    assert code == 2
    assert "another name" in err
    path.write_text(GOOD.replace("learning_rate", "lerning_rate"))
    code, out, err = cli(monkeypatch, capsys, log, "--rules", path)
    assert (code, out) == (2, "")
    assert err.startswith(f"trimtab: {path}:3: metric: no reading is called 'lerning_rate'; did you mean aggregate/learning_rate")  # fmt: skip
    assert len(err.splitlines()) == 1


def test_a_rule_without_input_is_named(tmp_path) -> None:
    path = file_of(tmp_path, one(metric="grad_norm", name="no_input"))
    view = load_view(write(tmp_path / "run", path, steps=5))
    assert diagnosis(view)["not_run"] == {"no_input": "no reading aggregate/grad_norm in slice all so far"}


def test_a_bound_of_the_user_does_not_end_the_wait_for_the_built_in_rules(tmp_path) -> None:
    (mine,) = load_rules(file_of(tmp_path, one(metric="loss")))
    pipeline = Pipeline((*RULES, mine))
    for step in range(int(bound("baseline"))):
        assert mine.name not in pipeline.judged()
        pipeline.on_readings([Reading("aggregate/loss", step, Window(step, step), "all", 0.5, 0, 0)])
        pipeline.on_readings(
            [Reading("aggregate/kl", step, Window(step, step), "all", 0.5, 0, 0)] * (step == 0)
        )
    assert mine.name in pipeline.judged()
    assert not pipeline.ready("aggregate")  # the built-in rules on kl have seen one value


def test_the_header_round_trips_and_a_damaged_one_is_a_gap(tmp_path) -> None:
    rules = load_rules(file_of(tmp_path, GOOD))
    config = json.loads(json.dumps(header_config(rules)))
    assert header_config(rules_of_header(config, "x")) == config
    folder = write(tmp_path / "run", tmp_path / "rules.yaml")
    header = json.loads((folder / "run.json").read_text())
    header["config"]["rules"][0]["metric"] = "gone"
    (folder / "run.json").write_text(json.dumps(header))
    view = load_view(folder)
    assert any(a.rule == "lr_high" for a in view.alarms)
    assert any("'gone'" in gap for gap in view.evidence.gaps)


def test_a_resume_with_other_rules_says_so(tmp_path, caplog) -> None:
    folder = write(tmp_path / "run", ())
    trimtab.open_run(folder, rules=[python_rule()]).close()
    assert "other rules" in caplog.text
    assert threshold("kl_floor", 1)(1e4)
