"""Mutants of the package's source: one operator, constant or condition of one line, changed.

Left out, because a fault there is not one of arithmetic: everything outside functions (`__all__`, tables of constants), docstrings, annotations,
f-strings, what is raised, and calls that log. Nothing is left out because it survived.

The sample is drawn by hashes of the lines' own text, so an edit changes the mutants of the edited lines and no others.
"""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from hashlib import sha256
from itertools import accumulate
from pathlib import Path

__all__ = ["FOLDERS", "IDENTITY", "Mutant", "mutants_of", "sample"]

FOLDERS = ("stats", "measure", "detect", "runs", "objectives")

_COMPARISONS = {
    ast.Lt: "<=", ast.LtE: "<", ast.Gt: ">=", ast.GtE: ">", ast.Eq: "!=", ast.NotEq: "==", ast.Is: "is not", ast.IsNot: "is",
    ast.In: "not in", ast.NotIn: "in",
}  # fmt: skip
_ARITHMETIC = {
    ast.Add: "-", ast.Sub: "+", ast.Mult: "/", ast.Div: "*", ast.FloorDiv: "*", ast.Mod: "*", ast.Pow: "*", ast.BitAnd: "|", ast.BitOr: "&",
}  # fmt: skip
_SWAPPED = {"min": "max", "max": "min", "minimum": "maximum", "maximum": "minimum", "any": "all", "all": "any", "argmin": "argmax", "argmax": "argmin"}  # fmt: skip


@dataclass(frozen=True)
class Mutant:
    """One changed expression of one file."""

    path: str  # below src/trimtab
    line: int
    code: str  # the line
    occurrence: int  # number of lines of the same code above it in the file
    column: int  # of `old` in `code`, bytes
    operator: str
    old: str  # source of the expression
    new: str
    start: int  # byte offsets of `old` in the file
    end: int

    @property
    def identity(self) -> tuple[object, ...]:
        """Values of the fields that stay the same when other lines change."""
        return tuple(getattr(self, name) for name in IDENTITY)


IDENTITY = ("path", "code", "occurrence", "column", "old", "new")
"""Fields of a mutant that stay the same when other lines change."""

_LOOSE = (ast.NamedExpr, ast.Compare, ast.BoolOp, ast.IfExp, ast.Lambda, ast.UnaryOp)
_LOGGERS = ("log", "logger", "logging", "warnings")


def mutants_of(source: str, path: str) -> Iterator[Mutant]:
    """Every mutant of the code in a file's functions."""
    data, tree = source.encode(), ast.parse(source)
    lines = data.split(b"\n")
    starts = [0, *accumulate(len(line) + 1 for line in lines)]
    codes, seen = [line.strip().decode() for line in lines], Counter[str]()
    occurrences = [0] * len(codes)
    for i, code in enumerate(codes):
        occurrences[i], seen[code] = seen[code], seen[code] + 1

    def span(node: ast.expr) -> tuple[int, int]:
        return starts[node.lineno - 1] + node.col_offset, starts[node.end_lineno - 1] + node.end_col_offset  # type: ignore[operator]

    def text(node: ast.expr) -> str:
        first, last = span(node)
        return data[first:last].decode()

    for node in _code(tree):
        for operator, new in _changes(node, text):
            first, last = span(node)
            at, line = node.lineno - 1, lines[node.lineno - 1]
            column = node.col_offset - (len(line) - len(line.lstrip()))
            names = (path, node.lineno, codes[at], occurrences[at], column, operator, text(node), new)
            yield Mutant(*names, first, last)


def _code(tree: ast.AST) -> Iterator[ast.expr]:
    """Expressions inside functions, without annotations, f-strings, what is raised and what is logged."""
    for function in ast.walk(tree):
        if isinstance(function, ast.FunctionDef):
            stack: list[ast.AST] = list(function.body)
            while stack:
                node = stack.pop()
                if isinstance(node, (ast.FunctionDef, ast.ClassDef, ast.JoinedStr, ast.Raise)):
                    continue
                if isinstance(node, ast.Call) and _logs(node):
                    continue
                if isinstance(node, ast.expr):
                    yield node
                skipped = {node.annotation} if isinstance(node, ast.AnnAssign) else set()
                stack += [child for child in ast.iter_child_nodes(node) if child not in skipped]


def _logs(call: ast.Call) -> bool:
    function = call.func
    return (
        isinstance(function, ast.Attribute)
        and isinstance(function.value, ast.Name)
        and function.value.id in _LOGGERS
    )


def _changes(node: ast.expr, text: Callable[[ast.expr], str]) -> Iterator[tuple[str, str]]:
    """Names of operators and the new source of an expression, in brackets where it could bind otherwise."""
    if isinstance(node, ast.Compare) and len(node.ops) == 1:
        left, right = (
            f"({text(side)})" if isinstance(side, _LOOSE) else text(side)
            for side in (node.left, node.comparators[0])
        )
        yield "comparison", f"({left} {_COMPARISONS[type(node.ops[0])]} {right})"
    elif isinstance(node, ast.BinOp) and type(node.op) in _ARITHMETIC:
        if not any(
            isinstance(side, ast.Constant) and isinstance(side.value, str) for side in (node.left, node.right)
        ):
            yield "arithmetic", f"(({text(node.left)}) {_ARITHMETIC[type(node.op)]} ({text(node.right)}))"
    elif isinstance(node, ast.BoolOp):
        word = " or " if isinstance(node.op, ast.And) else " and "
        yield "boolean", "(" + word.join(f"({text(value)})" for value in node.values) + ")"
    elif isinstance(node, ast.UnaryOp):
        yield "removed " + type(node.op).__name__.lower(), f"({text(node.operand)})"
    elif isinstance(node, ast.IfExp):
        yield (
            "negated condition",
            f"(({text(node.body)}) if not ({text(node.test)}) else ({text(node.orelse)}))",
        )
    elif isinstance(node, ast.Constant) and isinstance(node.value, (int, float)):
        yield "constant", repr(not node.value) if isinstance(node.value, bool) else repr(node.value + 1)
    elif isinstance(node, ast.Call):
        name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        if name in _SWAPPED:
            whole, function = text(node), text(node.func)
            yield "swapped " + name, function[: -len(name)] + _SWAPPED[name] + whole[len(function) :]


def sample(root: Path, num: int, seed: int) -> list[Mutant]:
    """One mutant of each of `num` random lines, in random order: any first part of the list is a random sample too.

    The lines are those of the smallest hashes of (seed, path, code, occurrence), and so is the mutant of a line.
    """

    def draw(*parts: object) -> str:
        return sha256("\0".join(map(str, (seed, *parts))).encode()).hexdigest()

    lines: dict[str, list[Mutant]] = {}
    for folder in FOLDERS:
        for file in sorted((root / "src/trimtab" / folder).rglob("*.py")):
            path = file.relative_to(root / "src/trimtab").as_posix()
            for mutant in mutants_of(file.read_text(), path):
                lines.setdefault(draw(path, mutant.code, mutant.occurrence), []).append(mutant)
    return [min(lines[key], key=lambda one: draw(*one.identity)) for key in sorted(lines)[:num]]
