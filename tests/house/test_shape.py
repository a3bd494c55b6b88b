"""The shape of the house: sizes of packages, files and signatures, names of modules, documented faces, broad handlers."""

from __future__ import annotations

import ast
import importlib
import inspect
import re
from collections import Counter, defaultdict

import pytest

from tests.house.allowed import (
    BROAD_HANDLERS,
    LONG_SIGNATURES,
    OUTSIDE_40_TO_300_LINES,
    SHARED_STEMS,
    UNDOCUMENTED_FACES,
)
from tests.house.tree import SOURCE, definitions, modules, parse, relative

MAX_MODULES, MIN_LINES, MAX_LINES, MAX_PARAMETERS = 15, 40, 300, 6
TABLES = ("catalog/", "detect/rules/", "metric_logs/frameworks/")
"""Folders of tables: a file is as long as its table."""
COMMON_STEMS = frozenset({"__init__", "base", "reader", "types"})


def test_a_package_has_at_most_fifteen_modules() -> None:
    sizes = Counter(relative(path.parent) for path in modules() if path.name != "__init__.py")
    crowded = {package: size for package, size in sizes.items() if size > MAX_MODULES}
    assert not crowded


def test_a_module_has_40_to_300_lines() -> None:
    outside = set()
    for path in modules():
        lines = len(path.read_text(encoding="utf-8").splitlines())
        if path.name.startswith("__") or relative(path).startswith(TABLES):
            continue
        if not MIN_LINES <= lines <= MAX_LINES:
            outside.add(relative(path))
    assert outside == set(OUTSIDE_40_TO_300_LINES), (
        "the allow-list may only shrink: change the file or the list"
    )


def test_a_stem_names_one_thing() -> None:
    named = defaultdict(set)
    for path in modules():
        if path.stem not in COMMON_STEMS:
            named[path.stem].add(relative(path))
    shared = {stem for stem, paths in named.items() if len(paths) > 1}
    assert shared == set(SHARED_STEMS), "the allow-list may only shrink"


def test_a_package_exports_no_function_under_the_name_of_its_module() -> None:
    for path in modules():
        if path.name == "__init__.py":
            inside = {p.stem for p in path.parent.glob("*.py")} | {
                p.name for p in path.parent.iterdir() if p.is_dir()
            }
            assert not inside & set(exports(path)) - {"__init__"}, relative(path)


def test_signatures_have_at_most_six_parameters() -> None:
    long = set()
    for module, name, node in definitions():
        if isinstance(node, ast.ClassDef) or any("command" in ast.unparse(d) for d in node.decorator_list):
            continue
        a = node.args
        names = [arg.arg for arg in (*a.posonlyargs, *a.args, *a.kwonlyargs)]
        if len([n for n in names if n not in ("self", "cls")]) > MAX_PARAMETERS:
            long.add(f"{module}:{name}")
    assert long == set(LONG_SIGNATURES), "the allow-list may only shrink: use an options dataclass"


def test_broad_handlers_are_listed() -> None:
    broad = Counter()
    for path in modules():
        for node in ast.walk(parse(path)):
            if isinstance(node, ast.ExceptHandler):
                caught = ast.unparse(node.type) if node.type else "BaseException"
                if re.search(r"\b(Base)?Exception\b", caught):
                    broad[relative(path)] += 1
    assert broad == {file: count for file, (count, _why) in BROAD_HANDLERS.items()}


def exports(path) -> list[str]:
    for node in parse(path).body:
        if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == "__all__":
            return [element.value for element in node.value.elts]
    return []


FACES = [path for path in modules() if path.name == "__init__.py" and exports(path)]


@pytest.mark.parametrize("face", FACES, ids=lambda p: relative(p.parent) or "trimtab")
def test_public_functions_have_sections(face) -> None:
    """Args, Returns, Raises and Example, where they apply; a Reference where there is a source."""
    package = ".".join(("trimtab", *face.parent.relative_to(SOURCE).parts))
    try:
        module = importlib.import_module(package)
        objects = {name: getattr(module, name) for name in exports(face)}
    except ImportError as error:
        pytest.skip(str(error))
    bare = {
        f"{package}.{name}" for name, value in objects.items() if inspect.isfunction(value) and missing(value)
    }
    allowed = {name for name in UNDOCUMENTED_FACES if name.rpartition(".")[0] == package}
    assert bare == allowed, "the allow-list may only shrink"


def missing(function) -> list[str]:
    text, signature = inspect.getdoc(function) or "", inspect.signature(function)
    wanted = ["Args:"] if [p for p in signature.parameters if p not in ("self", "cls")] else []
    wanted += ["Returns:"] if signature.return_annotation not in (None, "None") else []
    wanted += ["Example:"]
    if re.search(r"^\s*raise \w", inspect.getsource(function), re.MULTILINE):
        wanted.append("Raises:")
    return [section for section in wanted if not re.search(rf"^{section}", text, re.MULTILINE)]
