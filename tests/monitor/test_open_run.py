"""Arguments of `open_run` that cannot be right are one clear line, before anything is recorded."""

from __future__ import annotations

import numpy as np
import pytest

import trimtab
from trimtab.errors import RuleError, RunError
from trimtab.report.run_view import load_view
from trimtab.runs import compress_run

FOLDERS = ["\0", "a\0b", "", 5, None, b"run", "\ud800", ["run"]]


@pytest.mark.parametrize("folder", FOLDERS, ids=ascii)
@pytest.mark.parametrize("function", [trimtab.open_run, load_view, compress_run])
def test_what_names_no_folder_is_one_line(function, folder):
    """ "embedded null byte", and a TypeError of pathlib's."""
    with pytest.raises(RunError, match="cannot be the path of a folder; give its name as text") as error:
        function(folder)
    assert str(error.value).isascii()
    assert str(error.value).isprintable()


@pytest.mark.parametrize("function", [trimtab.open_run, load_view])
def test_a_name_that_is_too_long_is_one_line(tmp_path, function):
    with pytest.raises(RunError, match="File name too long"):
        function(tmp_path / ("x" * 300))


@pytest.mark.parametrize("rank", ["x", -1, 1.5, True, 10**30])
def test_a_rank_that_is_none_is_refused(tmp_path, rank):
    """Its files had names that no reader knows: a run of no rank, and not a word."""
    with pytest.raises(RunError, match=r"rank is .*; give a whole number from 0"):
        trimtab.open_run(tmp_path / "run", rank=rank)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("name", ["min_tokens", "min_trajectories", "state_every"])
@pytest.mark.parametrize("value", ["x", 0, -1, None, 1.5])
def test_a_size_that_is_none_is_refused(tmp_path, name, value):
    """The whole record was written and could not be read: "run.json gives min_tokens as None"."""
    with pytest.raises(RunError, match=f"{name} is .*; give a whole number from 1"):
        trimtab.open_run(tmp_path / "run", **{name: value})
    assert not (tmp_path / "run").exists()


def test_whole_numbers_of_numpy_are_taken(tmp_path):
    options = {"min_tokens": np.int64(50), "state_every": np.int32(2), "rank": np.int8(1)}
    with trimtab.open_run(tmp_path / "run", strict=True, **options) as run:
        run.flush(0)
    assert load_view(tmp_path / "run").min_tokens == 50


@pytest.mark.parametrize("wrong", [{"config": 5}, {"config": ["a"]}, {"token_text": 5}])
def test_options_of_the_wrong_kind_are_one_line(tmp_path, wrong):
    with pytest.raises(RunError, match="config is a dictionary, and token_text a function"):
        trimtab.open_run(tmp_path / "run", **wrong)


def test_rules_of_no_file_are_one_line(tmp_path):
    with pytest.raises(RuleError, match="cannot be read"):
        trimtab.open_run(tmp_path / "run", rules="\0")
