"""What a framework's key table is: theirs under ours, with the traps worth telling."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

_PAIRS = ("chosen_logp", "rejected_logp", "chosen_reward", "rejected_reward", "margin", "preference_accuracy")
_BARE = ("accuracy", "acc")
"""Keys that mean something of pairs only beside others of pairs: any run may log an accuracy."""


def lone_pair_metric(mapped: Mapping[str, str]) -> str | None:
    """Our name of a metric of preference pairs that rests on a bare key, with no other of pairs beside it.

    >>> lone_pair_metric({"preference_accuracy": "accuracy", "reward": "reward"})
    'preference_accuracy'
    >>> lone_pair_metric({"preference_accuracy": "accuracy", "margin": "margin"})
    """
    of_pairs = [name for name in _PAIRS if name in mapped]
    return of_pairs[0] if len(of_pairs) == 1 and mapped[of_pairs[0]] in _BARE else None


@dataclass(frozen=True)
class Framework:
    """How one trainer names its numbers.

    `keys`: our name -> their keys, the first that a log has counts. `patterns`: our name -> regular
    expressions for keys with a task's or an agent's name inside. `prefixes`: what W&B or TensorBoard writers
    put in front. `notes`: their key -> what a reader of our name must know. `parts`: a regular expression
    whose group is the name of one part of the reward; where a log has two or more they come as
    `reward_part:<name>`. `negated`: keys whose numbers have the other sign than ours. `versions`: where the
    table was read.
    """

    name: str
    versions: str
    keys: Mapping[str, tuple[str, ...]]
    patterns: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    prefixes: tuple[str, ...] = ()
    notes: Mapping[str, str] = field(default_factory=dict)
    parts: str = ""
    negated: frozenset[str] = frozenset()

    def plain(self, key: str) -> str:
        """Return the key without the prefix a log writer put in front; keys of evaluations stay distinct.

        >>> trl = Framework("trl", "", {}, prefixes=("train/",))
        >>> trl.plain("train/reward"), trl.plain("eval/reward")
        ('reward', 'eval_reward')
        """
        for prefix in self.prefixes:
            if key.startswith(prefix):
                return key.removeprefix(prefix)
            if prefix == "train/" and key.startswith("eval/"):
                return "eval_" + key.removeprefix("eval/")
        return key

    def translate(self, keys: Iterable[str]) -> tuple[dict[str, str], list[str]]:
        """Ours -> the log's key, and a line for each name that more than one key with a task's name inside
        would give.

        >>> Framework("x", "", {"kl": ("kl", "kl_loss")}).translate(["kl_loss", "lr"])
        ({'kl': 'kl_loss'}, [])
        """
        there: dict[str, str] = {}
        for key in sorted(keys, key=len, reverse=True):  # the bare key wins over the prefixed one
            there[self.plain(key)] = key
        mapped: dict[str, str] = {}
        lines: list[str] = []
        for ours in dict.fromkeys((*self.keys, *self.patterns)):
            theirs = next((key for key in self.keys.get(ours, ()) if key in there), None)
            if theirs is not None:
                mapped[ours] = there[theirs]
                continue
            for pattern in self.patterns.get(ours, ()):
                fits = sorted(key for plain, key in there.items() if re.fullmatch(pattern, plain))
                if fits:
                    mapped[ours] = fits[0]
                    if len(fits) > 1:
                        lines.append(
                            f"{ours}: {len(fits)} keys would give it; read {fits[0]}, not {', '.join(fits[1:4])}"  # noqa: E501
                        )
                    break
        if lone := lone_pair_metric({ours: self.plain(key) for ours, key in mapped.items()}):
            del mapped[lone]
        parts = {
            m.group(1): key
            for plain, key in there.items()
            if self.parts and (m := re.fullmatch(self.parts, plain))
        }
        if len(parts) > 1:  # one alone is the reward itself
            mapped |= {f"reward_part:{name}": key for name, key in sorted(parts.items())}
        return mapped, lines

    def signs(self, mapped: Mapping[str, str]) -> dict[str, int]:
        """Our name -> 1, or -1 where the trainer logs the negative of it.

        >>> Framework("x", "", {"kl": ("a",)}, negated=frozenset({"a"})).signs({"kl": "a", "loss": "b"})
        {'kl': -1, 'loss': 1}
        """
        return {ours: -1 if self.plain(key) in self.negated else 1 for ours, key in mapped.items()}

    def notes_for(self, mapped: Mapping[str, str]) -> list[str]:
        """The notes on the keys that were taken."""
        return [self.notes[plain] for plain in map(self.plain, mapped.values()) if plain in self.notes]
