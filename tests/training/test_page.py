"""Every field of MiniRLConfig stands in docs/reference/minirl-config.md, and importing the package costs no torch."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import fields
from pathlib import Path

import pytest


def test_every_own_field_is_documented():
    pytest.importorskip("trl", reason="needs the trl extra")
    from trl import GRPOConfig

    from trimtab.training import MiniRLConfig

    page = (Path(__file__).parents[2] / "docs" / "reference" / "minirl-config.md").read_text(encoding="utf-8")
    own = {field.name for field in fields(MiniRLConfig)} - {field.name for field in fields(GRPOConfig)}
    assert len(own) > 25
    assert not [name for name in own if f"`{name}`" not in page]


def test_the_names_are_loaded_only_when_asked_for():
    code = "import sys, trimtab.training.demo, trimtab.training as t; assert 'torch' not in sys.modules; t.nothing"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert "AttributeError: module 'trimtab.training' has no attribute 'nothing'" in done.stderr
