"""The environment of a training process that shares the machine with others."""

from __future__ import annotations

import os


def child_environment() -> dict[str, str]:
    """Ours, with one thread and no network: two torch processes with two threads each on two cores collapse."""
    return {**os.environ, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}
