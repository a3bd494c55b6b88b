"""A reward function as trainers write it, called one way: lists in, a list of numbers out.

Two families are known. A batch function takes `completions` and columns as lists, as TRL calls it; a single
one takes one completion and its answer, as verl, SkyRL and most own code do.
"""

from __future__ import annotations

import asyncio
import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from trimtab.errors import RewardError
from trimtab.user_code import load_object

ANSWER_NAMES = (
    "answer", "answers", "solution", "solutions", "ground_truth", "gold", "target", "targets", "label",
    "labels", "reference", "references", "expected", "gt", "gt_answer",
)  # fmt: skip
"""Arguments and columns that hold the answer of the task."""
COMPLETION_NAMES = (
    "completion", "response", "solution_str", "output", "text", "prediction", "generation",
    "model_response", "model_output", "model_answer",
)  # fmt: skip
PROMPT_NAMES = ("prompt", "question", "problem", "query", "instruction")
_IGNORED = {"trainer_state": None, "log_extra": None, "log_metric": None, "extra_info": None}
_DATA_SOURCE = "trimtab/probe"


@dataclass(frozen=True)
class Signature:
    """How a function wants to be called."""

    batch: bool  # lists of completions, as TRL; else one completion a call
    parameters: tuple[str, ...]  # names, without *args and **kwargs
    open: bool  # takes any further column (**kwargs)
    conversational: bool  # completions are lists of messages


def load_function(spec: str) -> Callable[..., Any]:
    """Return the function that `module:function` or `path/file.py:function` names; RewardError otherwise."""
    module_name, colon, name = spec.rpartition(":")
    if not colon or not module_name or not name:
        raise RewardError(f"{spec!r} names no function; write module:function, or path/file.py:function")
    function = load_object(module_name, name, RewardError)
    if not callable(function):
        raise RewardError(f"{spec} is a {type(function).__name__} and cannot be called")
    return function  # type: ignore[no-any-return]


def signature_of(function: Callable[..., Any], conversational: bool = False) -> Signature:
    """Return how a function is to be called; RewardError where its arguments have no name we know."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError) as error:
        raise RewardError("the function has no signature that can be read; wrap it in a def") from error
    names = tuple(p.name for p in parameters if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD))
    any_column = any(p.kind is p.VAR_KEYWORD for p in parameters)
    batch = "completions" in names or "completion_ids" in names
    if not batch and not any(name in COMPLETION_NAMES for name in names):
        raise RewardError(
            f"none of its arguments ({', '.join(names) or 'none'}) is a completion; name one `completions` "
            f"(a list, as TRL) or `completion` (one text), and the answer `answer`"
        )
    return Signature(batch, names, any_column, conversational)


def call_function(
    function: Callable[..., Any],
    signature: Signature,
    prompts: Sequence[Any],
    completions: Sequence[str],
    columns: Mapping[str, Sequence[Any]],
) -> list[float | None]:
    """Return one number a completion, or None where the function skips it.

    Args:
        prompts: texts or lists of messages.
        completions: B texts.
        columns: further columns of B values; `answer` stands for every name of `ANSWER_NAMES`.
    """
    if signature.batch:
        raw = _result(function(**_batch_arguments(signature, prompts, completions, columns)))
        if not isinstance(raw, (list, tuple)) and not hasattr(raw, "tolist"):
            raise RewardError(f"it returned a {type(raw).__name__} and not a list of rewards")
        values = raw.tolist() if hasattr(raw, "tolist") else list(raw)
        if len(values) != len(completions):
            raise RewardError(f"it returned {len(values)} rewards for {len(completions)} completions")
        return [number_of(value) for value in values]
    rewards = []
    for i, text in enumerate(completions):
        row = {name: values[i] for name, values in columns.items()}
        rewards.append(number_of(_result(function(**_single_arguments(signature, prompts[i], text, row)))))
    return rewards


def number_of(value: Any) -> float | None:
    """Return a reward as a number: a number, a boolean, an array of one, or verl's {"score": number}."""
    if isinstance(value, Mapping):
        inside = [value[key] for key in ("score", "reward") if key in value]
        if not inside:
            raise RewardError("it returned a dictionary without `score` or `reward`")
        value = inside[0]
    if value is None:
        return None
    if hasattr(value, "item"):
        value = value.item()
    if not isinstance(value, (int, float)):
        raise RewardError(f"it returned a {type(value).__name__} and not a number")
    return float(value)


def _result(value: Any) -> Any:
    """What the function gives, awaited where it is asynchronous."""
    if inspect.isawaitable(value):

        async def wait() -> Any:
            return await value

        return asyncio.run(wait())
    return value


def _batch_arguments(
    signature: Signature,
    prompts: Sequence[Any],
    completions: Sequence[str],
    columns: Mapping[str, Sequence[Any]],
) -> dict[str, Any]:
    texts: list[Any] = list(completions)
    messages = list(prompts)
    if signature.conversational:
        texts = [[{"role": "assistant", "content": text}] for text in completions]
        messages = [p if isinstance(p, list) else [{"role": "user", "content": p}] for p in prompts]
    ids = [_token_ids(text) for text in completions]
    known = {
        **columns, **_answers(columns), **dict.fromkeys(PROMPT_NAMES, messages), **_IGNORED,
        "prompts": messages, "completions": texts, "completion_ids": ids,
    }  # fmt: skip
    return _picked(signature, known, {"prompts", "completions", "completion_ids", *columns})


def _single_arguments(
    signature: Signature, prompt: Any, completion: str, row: Mapping[str, Any]
) -> dict[str, Any]:
    known = {
        **row, **_answers(row), **dict.fromkeys(PROMPT_NAMES, prompt), **_IGNORED,
        **dict.fromkeys(COMPLETION_NAMES, completion), "data_source": _DATA_SOURCE,
    }  # fmt: skip
    return _picked(signature, known, set(row))


def _picked(signature: Signature, known: dict[str, Any], always: set[str]) -> dict[str, Any]:
    """The arguments that the function names, and with **kwargs those of `always`."""
    wanted = set(signature.parameters) | (always if signature.open else set())
    return {name: value for name, value in known.items() if name in wanted}


def _answers(row: Mapping[str, Any]) -> dict[str, Any]:
    """The answer under every name a function may ask it by; a column of the data set keeps its own value."""
    given_columns = [name for name in ANSWER_NAMES if name in row]
    answer = row[given_columns[0]] if given_columns else None
    return {name: row.get(name, answer) for name in ANSWER_NAMES}


def _token_ids(text: str) -> list[int]:
    """Stand-ins for token ids, where a reward counts or compares them: one a word or sign, no tokenizer."""
    return [hash(word) % 50_000 for word in re.findall(r"\w+|[^\w\s]", text)]
