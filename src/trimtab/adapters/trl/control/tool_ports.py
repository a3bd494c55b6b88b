"""Levers of the tools of a GRPOTrainer: whose episodes are trained on, and which tools are offered."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from typing import Any

from trimtab.adapters.trl.control.broken_rows import BrokenRows
from trimtab.adapters.trl.control.lever_ports import LeverPort
from trimtab.tools.admission import ToolAdmission
from trimtab.tools.exclusion import Exclusion
from trimtab.types import Lever


def tool_ports(trainer: Any, exclusion: Exclusion) -> dict[Lever, LeverPort]:
    """Return the ports of a trainer's tools, none where it has none (a `rollout_func` calls its own).

    `tool_offer` is not among them where environments bring the tools, for TRL reads those of each row apart.

    Args:
        trainer: A GRPOTrainer, built and not yet trained; its generation is wrapped.
        exclusion: Which failed calls break an episode.
    """
    names = [str(getattr(one, "__name__", "")) for one in getattr(trainer, "tools", None) or ()]
    if not names or not hasattr(trainer, "_tool_call_loop"):
        return {}
    admission = ToolAdmission()
    AdmittedRows(trainer, exclusion, admission)
    levers: tuple[Lever, ...] = ("tool_broken_gradient", "tool_gradient")
    factories = getattr(trainer, "environment_factories", None)  # TRL 1.2 has the environments themselves
    if factories is None and getattr(trainer, "environments", None) is None:
        levers = (*levers, "tool_offer")
    slices = tuple(f"tool/{name}" for name in names)
    return {lever: _port(lever, admission, slices) for lever in levers}


def _port(lever: Lever, admission: ToolAdmission, slices: tuple[str, ...]) -> LeverPort:
    return LeverPort(
        slices,
        lambda where: admission.get(lever, where),
        lambda where, value: admission.set(lever, where, value),
    )


class AdmittedRows(BrokenRows):
    """Wraps a trainer: rows that an admission does not let through leave the batch, as broken ones do.

    Tools that are withheld are taken out of `trainer.tools` while it generates. All rows of a generation are
    offered the same ones, so on probation a tool is offered at some steps.
    """

    def __init__(self, trainer: Any, exclusion: Exclusion, admission: ToolAdmission) -> None:
        self.admission = admission
        self._called: defaultdict[int, set[str]] = defaultdict(set)
        self._broken_by: defaultdict[int, set[str]] = defaultdict(set)
        super().__init__(trainer, exclusion)

    def _note_call(self, row: int, name: str) -> None:
        self._called[row].add(name)

    def _note_broken(self, row: int, name: str) -> None:
        self._broken_by[row].add(name)

    def _is_valid(self, row: int, fields: Mapping[str, Any]) -> bool:  # noqa: ARG002
        trainer = self.trainer
        index = trainer.accelerator.process_index * self._num_local + row
        step, group = int(trainer.state.global_step), index // trainer.num_generations
        return self.admission.may_train(step, group, self._called[row], self._broken_by[row])

    def _calculate(self, inputs: Any, prompts: Any, *args: Any, **kwargs: Any) -> Any:
        self._num_local = len(inputs)
        return super()._calculate(inputs, prompts, *args, **kwargs)

    def _offers(self, name: str) -> bool:
        return self.admission.admits("tool_offer", name, int(self.trainer.state.global_step), 0)

    def _generate(self, inputs: Any, *args: Any, **kwargs: Any) -> Any:
        trainer = self.trainer
        tools = trainer.tools
        if trainer.model.training:
            trainer.tools = [one for one in tools if self._offers(one.__name__)]
        try:
            return super()._generate(inputs, *args, **kwargs)
        finally:
            trainer.tools = tools

    def _loop(self, *args: Any, **kwargs: Any) -> Any:
        trainer = self.trainer
        dicts = trainer._sync_tool_dicts, trainer._async_tool_dicts
        if trainer.model.training:  # a tool that is in no prompt may be called all the same
            trainer._sync_tool_dicts, trainer._async_tool_dicts = (
                [{name: one for name, one in tools.items() if self._offers(name)} for tools in rows]
                for rows in dicts
            )
        try:
            return super()._loop(*args, **kwargs)
        finally:
            trainer._sync_tool_dicts, trainer._async_tool_dicts = dicts

    def _forget(self) -> None:
        super()._forget()
        self._called.clear()
        self._broken_by.clear()
