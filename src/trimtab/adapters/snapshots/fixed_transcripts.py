"""What a run's snapshots ask: prompts and transcripts as token ids, the same after a resume.

They are written once to `snapshot_set.json` in the run folder. Other prompts or transcripts get another
name, and scores of two names are not compared.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from trimtab.errors import UnsupportedError
from trimtab.safe_files import replacing
from trimtab.snapshots import SnapshotPrompt

Messages = Sequence[Mapping[str, Any]]
FILE = "snapshot_set.json"
_ARRAYS = ("prompt_ids", "prompt_mask", "completion_ids", "completion_mask", "tool_mask")
_SCANNED_ROWS = 1_000


@dataclass(frozen=True)
class SnapshotOptions:
    """What snapshots of a trainer ask, and how often."""

    every: int = 50
    """Optimizer steps between two snapshots; there is one before the first step and one after the last."""
    prompts: Sequence[str | Messages] = ()
    """Fixed prompts, texts or messages. Messages may end with a tool's result: then the answer is what
    follows a tool. Empty: the first distinct ones of the training set's column `prompt`."""
    num_prompts: int = 24
    """How many of the training set are taken."""
    transcripts: Sequence[Messages] | Mapping[str, Any] = ()
    """Fixed transcripts: messages, each one of the assistant scored as a transcript of its own, or
    integer arrays (B, .) by TRL's names. Empty: what the first snapshot
    answers."""
    max_new_tokens: int = 128
    reward: Callable[[list[str], list[str]], Sequence[float]] | None = None
    """Takes the prompts' texts and the answers, and returns a reward each; the advice on checkpoints uses
    it."""

    def __post_init__(self) -> None:
        """Refuse numbers that ask for nothing."""
        if min(self.every, self.num_prompts, self.max_new_tokens) < 1:
            raise UnsupportedError(
                "every, num_prompts and max_new_tokens of SnapshotOptions must be at least 1"
            )


@dataclass(frozen=True)
class FixedTranscript:
    """One transcript of T tokens. `own`: the agent wrote it. `post_tool`: the agent wrote it after a tool
    result."""

    ids: tuple[int, ...]
    own: tuple[bool, ...]
    post_tool: tuple[bool, ...]


@dataclass(frozen=True)
class FixedSet:
    """Prompts with their ids, and transcripts; `key`: of what was asked for, before any model answered."""

    key: str
    prompts: tuple[SnapshotPrompt, ...]
    prompt_ids: tuple[tuple[int, ...], ...]
    transcripts: tuple[FixedTranscript, ...]

    @property
    def name(self) -> str:
        """Eight hex digits of the transcripts."""
        return _digest([asdict(row) for row in self.transcripts])

    def store(self, folder: Path) -> None:
        """Write the set, whole or not at all."""
        with replacing(folder / FILE) as temporary:
            temporary.write_text(json.dumps(asdict(self)), encoding="utf-8")


def stored_set(folder: Path, key: str) -> FixedSet | None:
    """Return the set of a run folder; None where there is none, or one of other prompts or transcripts."""
    try:
        data = json.loads((folder / FILE).read_text(encoding="utf-8"))
        if data["key"] != key:
            return None
        return FixedSet(
            key,
            tuple(SnapshotPrompt(row["text"], bool(row["post_tool"])) for row in data["prompts"]),
            tuple(tuple(map(int, row)) for row in data["prompt_ids"]),
            tuple(
                FixedTranscript(*(tuple(row[name]) for name in ("ids", "own", "post_tool")))
                for row in data["transcripts"]
            ),
        )
    except (OSError, ValueError, KeyError, TypeError):
        return None


def fixed_set(trainer: Any, options: SnapshotOptions) -> FixedSet:
    """Return the prompts and transcripts of a trainer's snapshots; without transcripts where the first
    answers are them.

    Raises UnsupportedError where no prompts are named and the training set has none.
    """
    template = _Template(trainer)
    wanted = list(options.prompts) or _of_dataset(
        getattr(trainer, "train_dataset", None), options.num_prompts
    )
    texts = [template.text(prompt) for prompt in wanted]
    prompts = tuple(
        SnapshotPrompt(text, _after_tool(prompt)) for text, prompt in zip(texts, wanted, strict=True)
    )
    transcripts = options.transcripts
    rows = (
        _of_arrays(transcripts)
        if isinstance(transcripts, Mapping)
        else [row for one in transcripts for row in template.turns(one)]
    )
    key = _digest([texts, [asdict(row) for row in rows], options.max_new_tokens])
    return FixedSet(key, prompts, tuple(tuple(template.ids(text)) for text in texts), tuple(rows))


def answered(fixed: FixedSet, answers: Sequence[Sequence[int]]) -> FixedSet:
    """Return the set with the first answers as its transcripts; empty answers are left out."""
    rows = []
    for prompt, ids, answer in zip(fixed.prompts, fixed.prompt_ids, answers, strict=True):
        own = (False,) * len(ids) + (True,) * len(answer)
        after = own if prompt.post_tool else (False,) * len(own)
        if answer and len(own) > 1:
            rows.append(FixedTranscript((*ids, *answer), own, after))
    return FixedSet(fixed.key, fixed.prompts, fixed.prompt_ids, tuple(rows))


class _Template:
    """The trainer's tokenizer and chat template, as it renders prompts itself."""

    def __init__(self, trainer: Any) -> None:
        processor = trainer.processing_class
        self.tokenizer = getattr(processor, "tokenizer", processor)
        self.options: dict[str, Any] = dict(getattr(trainer, "chat_template_kwargs", None) or {})
        if tools := getattr(trainer, "tools", None):
            self.options["tools"] = tools
        if template := getattr(trainer, "chat_template", None):
            self.options["chat_template"] = template

    def text(self, prompt: str | Messages) -> str:
        """Return a prompt as the model reads it."""
        return prompt if isinstance(prompt, str) else self._render(prompt, True)

    def ids(self, text: str) -> list[int]:
        """Return the ids of a rendered text; a template has written its own special tokens."""
        special = not self.tokenizer.bos_token or not text.startswith(self.tokenizer.bos_token)
        return list(self.tokenizer(text, add_special_tokens=special)["input_ids"])

    def turns(self, messages: Messages) -> list[FixedTranscript]:
        """Return one transcript for each message of the assistant, behind what it would have read.

        What it wrote is what rendering adds behind the generation prompt. Turns are rendered one by one, as
        templates change earlier turns once others follow (Qwen3 drops their thoughts).
        """
        rows, spoken = [], False
        for i, message in enumerate(messages):
            spoken = spoken or message.get("role") == "tool"
            if message.get("role") != "assistant":
                continue
            opened, whole = self._render(messages[:i], True), self._render(messages[: i + 1], False)
            if not whole.startswith(opened):
                raise UnsupportedError(
                    "the chat template renders an assistant's message without its generation prompt: "
                    "give transcripts as integer arrays"
                )
            context, written = self.ids(opened), self._plain(whole[len(opened) :])
            own = (False,) * len(context) + (True,) * len(written)
            after = own if spoken else (False,) * len(own)
            rows.append(FixedTranscript((*context, *written), own, after))
        if not rows:
            raise UnsupportedError("a transcript of snapshots has no message of the assistant")
        return rows

    def _plain(self, text: str) -> list[int]:
        return list(self.tokenizer(text, add_special_tokens=False)["input_ids"])

    def _render(self, messages: Messages, opens: bool) -> str:
        return str(
            self.tokenizer.apply_chat_template(
                [dict(message) for message in messages],
                tokenize=False,
                add_generation_prompt=opens,
                **self.options,
            )
        )


def _after_tool(prompt: str | Messages) -> bool:
    if isinstance(prompt, str):
        return "<tool_response>" in prompt
    return any(message.get("role") == "tool" for message in prompt)


def _of_dataset(dataset: Any, count: int) -> list[Any]:
    """Return the first distinct prompts of a training set that has a length and a column `prompt`."""
    columns = getattr(dataset, "column_names", None) or ()
    if "prompt" not in columns or not hasattr(dataset, "__len__"):
        raise UnsupportedError(
            "snapshots need prompts, and the training set has no column `prompt`: "
            "give SnapshotOptions(prompts=[...])"
        )
    distinct: dict[str, Any] = {}
    for i in range(min(len(dataset), _SCANNED_ROWS)):
        prompt = dataset[i]["prompt"]
        distinct.setdefault(json.dumps(prompt, default=str), prompt)
        if len(distinct) == count:
            break
    return list(distinct.values())


def _of_arrays(arrays: Mapping[str, Any]) -> list[FixedTranscript]:
    """Return transcripts from integer arrays by TRL's names; `tool_mask` is 0 on tokens of tools."""
    missing = [name for name in _ARRAYS if name not in arrays]
    if missing:
        raise UnsupportedError(
            f"transcripts of snapshots lack {', '.join(missing)}; give all of {', '.join(_ARRAYS)}"
        )
    columns = {name: np.asarray(arrays[name]).astype(np.int64) for name in _ARRAYS}
    rows = []
    for i in range(len(columns["prompt_ids"])):
        prompt = columns["prompt_ids"][i][columns["prompt_mask"][i] > 0].tolist()
        exists = columns["completion_mask"][i] > 0
        written = columns["completion_ids"][i][exists].tolist()
        mine = columns["tool_mask"][i][exists] > 0
        after = mine & (np.cumsum(~mine) > 0)
        head = [False] * len(prompt)
        rows.append(FixedTranscript((*prompt, *written), (*head, *mine.tolist()), (*head, *after.tolist())))
    return rows


def _digest(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, default=str).encode()).hexdigest()[:8]
