"""A small bank with a known order of events, written and read once for all files of this folder."""

from __future__ import annotations

import pytest
from reproduce.pilot.reading import load_bank

from tests.reproduce.test_bank import write


@pytest.fixture(scope="session")
def bank(tmp_path_factory):
    root = tmp_path_factory.mktemp("bank")
    for seed in range(3):
        write(root, "constrained", seed)
        write(root, "open_hot", seed, tail_from=14, reward_from=27)
    write(root, "open", 0, tail_from=20)
    write(root, "constrained_fast", 0, tail_from=14)  # healthy, and no quiet run: it must not set a threshold
    write(root, "frozen", 0, reward_from=27, rate=0.0)
    return root


@pytest.fixture(scope="session")
def runs(bank):
    return load_bank(bank)
