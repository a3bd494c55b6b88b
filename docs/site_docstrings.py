"""Extension of griffe (mkdocs.yml): code of an `Example:` section is shown as code. Markdown would join its lines."""

from __future__ import annotations

import ast
import re
import textwrap
from typing import Any

import griffe

SECTION = re.compile(r"^Example:\n((?:[ ]{4}.*(?:\n|\Z)|[ ]*\n)+)", re.M)


def fenced(section: re.Match[str]) -> str:
    """Return the section with its code between fences, unchanged where it is prose."""
    body = textwrap.dedent(section[1]).strip()
    language = "pycon" if body.startswith(">>>") else "python"
    try:
        ast.parse("" if language == "pycon" else body)
    except SyntaxError:
        return section[0]
    return "Example:\n" + textwrap.indent(f"```{language}\n{body}\n```", "    ") + "\n\n"


class CodeExamples(griffe.Extension):
    """Fences the examples of every object before its docstring is parsed."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        """Change the text of one docstring."""
        if obj.docstring:
            obj.docstring.value = SECTION.sub(fenced, obj.docstring.value)
