"""Policy files: what is right takes effect, what is wrong is refused at the start, in one line."""

from __future__ import annotations

import pytest

import trimtab
from trimtab.detect.incidents import CAUSES
from trimtab.errors import GuardError
from trimtab.guard import PRESETS, guard_options
from trimtab.guard.cause_table import DEFAULT, POLICIES_OF_CAUSE, policies_for
from trimtab.guard.presets import Policies


def test_a_file_changes_what_it_names_and_nothing_else(tmp_path) -> None:
    path = tmp_path / "p.yaml"
    path.write_text(
        "preset: strict\ncool_down: 7\npolicies:\n  learning_rate_backoff: {factor: 0.5}\n"
        "causes:\n  stale rollouts: [learning_rate_backoff]\n"
    )
    options, strict = guard_options(path), PRESETS["strict"]
    assert (options.cool_down, options.policies.learning_rate_backoff.factor) == (7, 0.5)
    assert options.policies.learning_rate_backoff.min_scale == strict.policies.learning_rate_backoff.min_scale
    assert (options.confirm_steps, options.policies.stop) == (strict.confirm_steps, strict.policies.stop)
    assert policies_for("stale rollouts", options.table) == ("learning_rate_backoff",)
    assert policies_for("updates too large", options.table) == POLICIES_OF_CAUSE["updates too large"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("policies: {lower_rate: {}}", "unknown field of a guard"),
        ("policies: {kl_cap: {coeff: 1}}", "did you mean coef?"),
        (
            "policies: {tighten_corrections: {token_is_cap: -1}}",
            "-1 is not valid; give a finite number >= 1.0",
        ),
        ("policies: {kl_cap: {coef: -0.1}}", "-0.1 is not valid; give a finite number >= 0.0"),
        ("policies: {learning_rate_backoff: {recovery: 1}}", "recovery must be above 1"),
        ("policies: {tighten_corrections: {order: [lr_scale]}}", "'lr_scale' is not one of"),
        ("causes: {stale rollouts: [reboot]}", "unknown action 'reboot'"),
        ("causes: {stale rolouts: []}", "did you mean stale rollouts?"),
        ("preset: gentle", "'gentle' is unknown"),
        ("cool_down: 0", "0 is not valid"),
        ("states: {every: 0}", "0 is not valid"),
        ("[1, 2]", "give fields of a guard"),
        ("", "the file is empty; give fields of a guard"),
        ("preset: !!python/name:os.system strict", "is not read"),
    ],
)
def test_what_is_wrong_is_refused_before_the_run_begins(tmp_path, text, message) -> None:
    path = tmp_path / "p.yaml"
    path.write_text(text + "\n" if text else "")
    with pytest.raises(GuardError) as refused:
        trimtab.open_run(tmp_path / "run", guard=path)
    assert message in str(refused.value)
    assert str(refused.value).startswith(str(path))
    assert "\n" not in str(refused.value)
    assert not (tmp_path / "run").exists()


def test_a_word_that_is_no_preset_is_refused(tmp_path) -> None:
    with pytest.raises(GuardError, match="give observe, recommended, strict or a YAML file"):
        trimtab.open_run(tmp_path / "run", guard="recomended")


def test_a_ring_larger_than_the_disk_is_refused(tmp_path) -> None:
    options = guard_options("recommended")
    options.require_disk(tmp_path / "not" / "there", state_bytes=1e3)
    with pytest.raises(GuardError, match="a ring of 3 states needs 3e\\+09 GB"):
        options.require_disk(tmp_path, state_bytes=1e18)
    path = tmp_path / "p.yaml"
    path.write_text("observe: true\nstates: {max_gb: 1e9}\n")
    with pytest.raises(GuardError, match="needs 1e\\+09 GB"):
        trimtab.open_run(tmp_path / "run", guard=path)
    assert not (tmp_path / "run").exists()


def test_the_table_names_causes_and_policies_that_exist() -> None:
    assert set(POLICIES_OF_CAUSE) == set(CAUSES)
    names = {name for row in (*POLICIES_OF_CAUSE.values(), DEFAULT) for name in row}
    assert names <= set(Policies.__struct_fields__)
    assert policies_for("a cause of next year", POLICIES_OF_CAUSE) == DEFAULT
