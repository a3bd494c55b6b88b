"""Slices of tokens (text, post_tool, one tool): count what was done in each, and give each its own number.

The mistake it prevents: "0.3 % of tokens were dropped" while a third of one tool's tokens were.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from trimtab.errors import ObjectiveError
from trimtab.objectives.tensor_checks import need_shape


@dataclass(frozen=True)
class Cells:
    """Disjoint slices of tokens.

    Raises:
        ObjectiveError: `index` is not (B, T) integers, or holds a cell without a name.
    """

    index: Tensor
    """Cell of each token, integers (B, T) in [0, C); tokens outside the loss get any of them."""
    names: tuple[str, ...]
    """Names of the C cells."""

    def __post_init__(self) -> None:
        if self.index.dim() != 2 or self.index.is_floating_point() or self.index.dtype == torch.bool:
            raise ObjectiveError(
                f"cells must be integers (B, T), got {self.index.dtype} {tuple(self.index.shape)}"
            )
        if self.index.numel() and not 0 <= int(self.index.min()) <= int(self.index.max()) < len(self.names):
            raise ObjectiveError(
                f"cells hold {int(self.index.min())} to {int(self.index.max())}; names: {len(self.names)}"
            )


Slices = Cells | Mapping[str, Tensor]
"""Cells, or name -> boolean mask (B, T); the masks may overlap where they only count."""

Counts = dict[str, dict[str, Tensor]]
"""What was done -> slice -> number of tokens (0-d int64, still on the device); slice `all` is always there.
"""


def count_marks(marks: Mapping[str, Tensor], loss_mask: Tensor, slices: Slices | None = None) -> Counts:
    """Return the number of loss tokens that carry each mark, in `all` and in each slice.

    Every count is a sum, so counts of micro-batches and ranks add.

    Args:
        marks: Name -> boolean (B, T).
        loss_mask: Tokens of the loss, boolean (B, T).
        slices: Cells, or name -> boolean (B, T).

    Returns:
        Mark -> slice -> tokens, 0-d int64 on the device.

    Example:
        >>> mask = torch.tensor([[True, True, False]])
        >>> cells = Cells(torch.tensor([[0, 1, 1]]), ("text", "post_tool"))
        >>> counts = count_marks({"clipped": torch.tensor([[False, True, True]])}, mask, cells)
        >>> {name: int(n) for name, n in counts["clipped"].items()}
        {'all': 1, 'text': 0, 'post_tool': 1}
    """
    shape = tuple(loss_mask.shape)
    counts: Counts = {}
    for name, mark in marks.items():
        hit = need_shape(name, mark, shape) & loss_mask
        counts[name] = {"all": hit.sum()}
        if isinstance(slices, Cells):
            index = need_shape("cells", slices.index, shape).flatten().long()
            sums = torch.zeros(len(slices.names), dtype=torch.int64, device=hit.device)
            sums.index_add_(0, index, hit.flatten().long())  # bincount would wait for the device
            counts[name].update(zip(slices.names, sums.unbind(), strict=True))
        elif slices is not None:
            for label, member in _masks(slices, shape):
                counts[name][label] = (hit & member).sum()
    return counts


def merge_counts(*several: Counts) -> Counts:
    """Return the sums of counts of different micro-batches.

    Args:
        *several: Counts of `count_marks`; a mark or slice that one lacks counts as zero there.

    Returns:
        Mark -> slice -> tokens.

    Example:
        >>> one, two = {"clipped": {"all": torch.tensor(1)}}, {"clipped": {"all": torch.tensor(2)}}
        >>> merge_counts(one, two)
        {'clipped': {'all': tensor(3)}}
    """
    total: Counts = {}
    for counts in several:
        for mark, by_slice in counts.items():
            into = total.setdefault(mark, {})
            for name, number in by_slice.items():
                into[name] = into[name] + number if name in into else number
    return total


def per_token(slices: Slices, table: Mapping[str, float], default: float) -> Tensor:
    """Return a number for each token from a number for each slice.

    Give the result as the cap, clip range, KL coefficient or bound of any function of this package.

    Args:
        slices: Cells, or name -> boolean (B, T).
        table: Slice -> number.
        default: Number of tokens whose slice is not in the table.

    Returns:
        Numbers (B, T), float32.

    Raises:
        ObjectiveError: The table names an unknown slice, or masks overlap with different numbers.

    Example:
        >>> cells = Cells(torch.tensor([[0, 1]]), ("text", "post_tool"))
        >>> per_token(cells, {"post_tool": 2.0}, default=5.0)
        tensor([[5., 2.]])
    """
    known = slices.names if isinstance(slices, Cells) else tuple(slices)
    unknown = sorted(set(table) - set(known))
    if unknown:
        raise ObjectiveError(f"no slice is called {', '.join(unknown)}; there are {', '.join(known)}")
    if isinstance(slices, Cells):
        row = torch.tensor(
            [float(table.get(name, default)) for name in slices.names], device=slices.index.device
        )
        return row[slices.index.long()]
    if not slices:
        raise ObjectiveError("no slice was given")
    out: Tensor | None = None
    taken: Tensor | None = None
    for name, member in _masks(slices, tuple(next(iter(slices.values())).shape)):
        if out is None or taken is None:
            out = torch.full(member.shape, float(default), device=member.device)
            taken = torch.zeros_like(member)
        if name in table:
            if bool((taken & member & (out != float(table[name]))).any()):
                raise ObjectiveError(
                    f"slice {name} overlaps another with another number; make the masks disjoint"
                )
            out = torch.where(member, torch.full_like(out, float(table[name])), out)
            taken = taken | member
    assert out is not None
    return out


def _masks(slices: Mapping[str, Tensor], shape: tuple[int, ...]) -> Iterator[tuple[str, Tensor]]:
    for name, member in slices.items():
        if need_shape(f"slice {name}", member, shape).dtype != torch.bool:
            raise ObjectiveError(f"slice {name} must be a boolean mask, got {member.dtype}")
        if name == "all":
            raise ObjectiveError(
                "a slice must not be called all: that is the sum over every token of the loss"
            )
        yield name, member
