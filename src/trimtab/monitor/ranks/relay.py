"""Decisions of the leading rank on their way to all ranks: published once, applied by each at one step."""

from __future__ import annotations

from trimtab.distributed.decisions import Decision, DecisionChannel


class DecisionRelay:
    """Publishes what the leading rank decides, and gives every rank what is due at its own step.

    A decision made after step s is due at step s + `delay` on all ranks, the leading one included. Where a
    collective of the trainer keeps the ranks in step, all of them have read it by then: a rank is past the
    collective of step s + 1 only when the leading one has closed step s. A rank that reads it later applies
    it then, and its row says how late.

    Example:
        relay = DecisionRelay(channel, leads=True, delay=2)
        relay.publish(17, text)
        for decision in relay.due(19): print(decision.text)
    """

    def __init__(self, channel: DecisionChannel, *, leads: bool, delay: int) -> None:
        self.channel, self.leads, self.delay = channel, leads, delay
        self._number = 0
        self._waiting: list[Decision] = []

    def publish(self, step: int, text: str) -> None:
        """Write what was decided after `step`. OSError where the channel takes no more: then no rank applies
        it."""
        decision = Decision(self._number, step, step + self.delay, text)
        self.channel.write(decision)
        self._number += 1
        self._waiting.append(decision)

    def due(self, step: int) -> list[Decision]:
        """Return the decisions to apply at `step` of this rank, in their order, each once."""
        if not self.leads:
            self._waiting += self.channel.poll()
        due = [one for one in self._waiting if one.apply_at <= step]
        self._waiting = [one for one in self._waiting if one.apply_at > step]
        return due

    def close(self) -> None:
        """Release the channel."""
        self.channel.close()
