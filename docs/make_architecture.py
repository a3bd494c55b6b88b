"""Renew the table of packages in docs/architecture.md from their docstrings: `python docs/make_architecture.py`."""

from __future__ import annotations

import ast
import re
from pathlib import Path

DOCS = Path(__file__).parent
PAGE, SOURCE = DOCS / "architecture.md", DOCS.parent / "src" / "trimtab"
BEGIN, END = "<!-- begin: packages -->", "<!-- end: packages -->"


def packages() -> str:
    """One row a package: its name and the first sentence of its docstring."""
    rows = ["| package | what it does |", "|---|---|"]
    for path in sorted(SOURCE.rglob("__init__.py"), key=lambda path: path.parent.parts):
        name = ".".join(("trimtab", *path.parent.relative_to(SOURCE).parts))
        rows.append(f"| `{name}` | {sentence(path)} |")
    return "\n".join(rows)


def sentence(path: Path) -> str:
    """The first sentence of a module's docstring."""
    text = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
    first = " ".join(text.partition("\n\n")[0].split())
    return re.split(r"(?<=\.) (?=[A-Z])", first)[0].replace("|", "\\|")


def page(text: str) -> str:
    """The page with its table renewed."""
    head, _, rest = text.partition(BEGIN)
    return f"{head}{BEGIN}\n{packages()}\n{END}{rest.partition(END)[2]}"


if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
