"""The source tree as the tests of the house read it: modules, packages, definitions, prose."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "trimtab"
Function = ast.FunctionDef | ast.AsyncFunctionDef


class Definition(NamedTuple):
    """One function or class: `module` relative to src/trimtab, `name` with its class in front."""

    module: str
    name: str
    node: Function | ast.ClassDef


@cache
def modules() -> tuple[Path, ...]:
    return tuple(sorted(SOURCE.rglob("*.py")))


def relative(path: Path) -> str:
    return path.relative_to(SOURCE).as_posix()


@cache
def parse(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def definitions() -> Iterator[Definition]:
    for path in modules():
        yield from _inside(relative(path), "", parse(path))


def _inside(module: str, prefix: str, node: ast.AST) -> Iterator[Definition]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            yield Definition(module, prefix + child.name, child)
            yield from _inside(module, f"{prefix}{child.name}.", child)
        elif not isinstance(child, ast.expr):
            yield from _inside(module, prefix, child)


def prose() -> Iterator[tuple[str, str]]:
    """Yield (file:line, text) of comments and string literals in src, and of lines in docs."""
    for path in modules():
        text = path.read_text(encoding="utf-8")
        for token in tokenize.generate_tokens(io.StringIO(text).readline):
            if token.type in (tokenize.COMMENT, tokenize.STRING) or token.type == FSTRING_MIDDLE:
                yield f"src/trimtab/{relative(path)}:{token.start[0]}", token.string
    pages = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
    for page in pages:
        for number, line in enumerate(page.read_text(encoding="utf-8").splitlines(), 1):
            yield f"{page.relative_to(ROOT)}:{number}", re.sub(r"`[^`]*`", "", line)


FSTRING_MIDDLE = getattr(tokenize, "FSTRING_MIDDLE", -1)


def identifiers() -> Iterator[tuple[str, str]]:
    """Yield (file:line, name) of every name that is defined: variables, arguments, functions, classes, fields."""
    for path in modules():
        for node in ast.walk(parse(path)):
            names: list[str] = []
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                names = [node.id]
            elif isinstance(node, ast.arg):
                names = [node.arg]
            elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
                names = [node.name]
            elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
                names = [node.attr]
            for name in names:
                yield f"src/trimtab/{relative(path)}:{node.lineno}", name
