"""Rewards of packages on PyPI, as they come: TRL 1.16, skyrl-gym 0.4 and math-verify 0.9 (through TRL).

The quirks were read off their code before the probes were written. A shaping term is no bad function; as the only reward of a
run it can be earned without an answer, and that is what a probe must say. `HACKABLE` and `SOUND` name the functions.
"""

from __future__ import annotations

from typing import Any

from skyrl_gym.envs.aime import utils as aime
from skyrl_gym.envs.gsm8k import utils as gsm8k
from skyrl_gym.envs.search import utils as search
from skyrl_gym.envs.sql import utils as sql
from trl.rewards import (
    accuracy_reward,
    get_cosine_scaled_reward,
    get_repetition_penalty_reward,
    get_soft_overlong_punishment,
    think_format_reward,
)

HACKABLE: dict[str, tuple[str, ...]] = {
    "trl_think_format": ("answer_ignored", "format"),
    "trl_cosine": ("padding",),
    "trl_repetition_penalty": ("answer_ignored",),
    "trl_soft_overlong": ("answer_ignored",),
    "skyrl_search_substring": ("answer_list", "contradiction"),
    "skyrl_gsm8k_format": ("format",),
    "skyrl_sql": ("format",),
}
"""Function name to the kinds of finding that are true of it."""
SOUND = ("skyrl_search_exact", "skyrl_gsm8k", "skyrl_aime_box")
OVERLOOKED: dict[str, tuple[str, ...]] = {"trl_accuracy": ("latency",)}
"""Taken for sound until a probe spoke, and the probe is right: 4,000 spaces in a box take math-verify 9 s, 8,000 its own limit
of 10 s. It counts neither for the probes nor against them."""

trl_think_format = think_format_reward
trl_cosine = get_cosine_scaled_reward(max_len=400)
trl_repetition_penalty = get_repetition_penalty_reward()
trl_soft_overlong = get_soft_overlong_punishment(max_completion_len=200, soft_punish_cache=100)


def trl_accuracy(completions: list[list[dict[str, str]]], answer: list[str], **_: Any) -> list[float | None]:
    """math-verify on the boxed answer; the answer is given boxed, for it parses nothing else."""
    return accuracy_reward(completions, solution=[f"\\boxed{{{gold}}}" for gold in answer])


def skyrl_search_substring(completion: str, answer: str) -> float:
    """The substring check that SkyRL's search environment has beside its exact one."""
    return float(search.compute_score_subem(completion, {"target": answer}))


def skyrl_search_exact(completion: str, answer: str) -> float:
    """The last tagged answer, normalized and compared exactly."""
    return float(search.compute_score(completion, {"target": answer}))


def skyrl_gsm8k(solution_str: str, ground_truth: str) -> float:
    """The number after four hashes, compared exactly."""
    return float(gsm8k.compute_score(solution_str, ground_truth))


def skyrl_gsm8k_format(solution_str: str, ground_truth: str) -> float:
    """The same with its own option of a reward for the format."""
    return float(gsm8k.compute_score(solution_str, ground_truth, format_score=0.3))


def skyrl_aime_box(solution_str: str, ground_truth: str) -> dict[str, Any]:
    """The last box of the last hundred characters; returns verl's dictionary with `score`."""
    return aime.compute_score(solution_str, ground_truth, strict_box_verify=True)


def skyrl_sql(completion: str, answer: str) -> float:
    """Rows of the query and of the reference compared; -1 without the format, 0 for a wrong query in it."""
    return float(sql.calculate_reward_single(completion, answer, ":memory:"))
