"""Weights that FSDP2 shards over ranks: read, exchanged and gathered without a copy of the whole model.

The mistakes it prevents: an exchange through `.data`, which FSDP2 never looks at, and a gathered copy of the
exchanged weights that is still there when the policy computes its next forward.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from trimtab.errors import ObjectiveError


def is_sharded(parameter: Tensor) -> bool:
    """Is this a DTensor, as FSDP2 and tensor parallelism make them?"""
    return hasattr(parameter, "placements")


def own_part(parameter: Any) -> Tensor:
    """Return what this rank has of a parameter; it shares the parameter's memory."""
    part: Tensor = parameter.detach()
    return part.to_local() if is_sharded(parameter) else part  # type: ignore[attr-defined]


def gathered(part: Tensor, parameter: Any) -> Tensor:
    """Return the whole tensor of which every rank has its part, laid out as `parameter` is. A collective."""
    if not is_sharded(parameter):
        return part
    from torch.distributed.tensor import DTensor

    whole = DTensor.from_local(
        part,
        parameter.device_mesh,
        parameter.placements,
        run_check=False,
        shape=parameter.shape,
        stride=parameter.stride(),
    )
    return whole.full_tensor()


def part_of(whole: Tensor, parameter: Any) -> Tensor:
    """Return this rank's part of a whole tensor, laid out as `parameter` is. No collective."""
    if not is_sharded(parameter):
        return whole
    from torch.distributed.tensor import distribute_tensor

    local = whole.to(own_part(parameter).device)
    return distribute_tensor(
        local, parameter.device_mesh, parameter.placements, src_data_rank=None
    ).to_local()


def drop_gathered(model: torch.nn.Module) -> None:
    """Free weights that FSDP2 left gathered after a forward, so that the next one gathers anew."""
    for module in model.modules():
        reshard = getattr(module, "reshard", None)
        if type(module).__name__.startswith("FSDP") and reshard is not None:
            reshard()


@contextmanager
def exchanged(
    parameters: Mapping[str, Any], values: Mapping[str, Tensor], model: torch.nn.Module | None = None
) -> Iterator[None]:
    """Put `values` into parameters, and the parameters' own back on leaving, bit for bit.

    Whole parameters get the other tensor; nothing is copied but what is cast. Of sharded ones the rank's part
    is written over, since FSDP2 gathers from that memory; a copy of it waits meanwhile.

    Args:
        parameters: Name -> parameter.
        values: Name -> value; this rank's part where the parameter is sharded. Cast to the parameter's type.
        model: Module that owns the parameters; it must be given where any of them is sharded.

    Raises:
        ObjectiveError: Sharded parameters without `model`.

    Example:
        >>> p = torch.nn.Parameter(torch.tensor([1.0]))
        >>> with exchanged({"p": p}, {"p": torch.tensor([5.0])}):
        ...     float(p)
        5.0
        >>> float(p)
        1.0
    """
    sharded = {name for name, parameter in parameters.items() if is_sharded(parameter)}
    if sharded and model is None:
        raise ObjectiveError(
            "these weights are sharded: pass the model, so that gathered copies of them are dropped"
        )
    own = {
        name: own_part(parameter).clone() if name in sharded else parameter.data
        for name, parameter in parameters.items()
    }
    try:
        with torch.no_grad():
            for name, parameter in parameters.items():
                _put(parameter, values[name].to(own[name].dtype), name in sharded)
        if sharded and model is not None:
            drop_gathered(model)
        yield
    finally:
        with torch.no_grad():
            for name, parameter in parameters.items():
                _put(parameter, own[name], name in sharded)
        if sharded and model is not None:
            drop_gathered(model)


def _put(parameter: Any, value: Tensor, sharded: bool) -> None:
    if sharded:
        own_part(parameter).copy_(value)
    else:
        parameter.data = value
