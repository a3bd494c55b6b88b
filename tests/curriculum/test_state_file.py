"""A process that is killed in the middle of a save leaves the state before, whole."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from trimtab.curriculum import Curriculum
from trimtab.errors import CurriculumError


def killed_in(action: Callable[[], None]) -> None:
    """Run a function in a fork, and see that the fork was killed."""
    child = os.fork()
    if child == 0:
        try:
            action()
        finally:
            os._exit(3)  # the kill did not come
    _, status = os.waitpid(child, 0)
    assert os.WIFSIGNALED(status)
    assert os.WTERMSIG(status) == signal.SIGKILL


@pytest.mark.parametrize("moment", ["half written", "not yet on disk", "not yet in its place"])
def test_kill_9_in_the_middle_of_a_save_loses_nothing(tmp_path, monkeypatch, moment):
    curriculum, path = Curriculum(50, seed=4), tmp_path / "state.json"
    curriculum.draw(5)
    curriculum.save(path)
    before = path.read_bytes()
    following = curriculum.draw(5)

    def kill(*_: object, **__: object) -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    def save() -> None:
        if moment == "half written":
            dump = json.dump

            def half(state: object, file: object, **_: object) -> None:
                dump({"version": 1}, file)  # type: ignore[arg-type]
                file.flush()  # type: ignore[attr-defined]
                kill()

            monkeypatch.setattr(json, "dump", half)
        else:
            owner, name = (os, "fsync") if moment == "not yet on disk" else (Path, "replace")
            monkeypatch.setattr(owner, name, kill)
        curriculum.save(path)

    killed_in(save)
    assert path.read_bytes() == before
    resumed = Curriculum(50, seed=4)
    resumed.load(path)
    assert resumed.draw(5) == following
    resumed.save(path)  # what the killed process left does not disturb
    assert path.read_bytes() != before


@pytest.mark.parametrize(
    ("content", "message"), [(None, "cannot be read"), ("{", "not a curriculum's"), ("[]", "holds list")]
)
def test_a_file_that_is_not_a_state_is_one_line(tmp_path, content, message):
    if content is not None:
        (tmp_path / "state.json").write_text(content)
    with pytest.raises(CurriculumError, match=message):
        Curriculum(3).load(tmp_path / "state.json")
    with pytest.raises(CurriculumError, match="cannot be written"):
        Curriculum(3).save(tmp_path / "missing" / "state.json")
