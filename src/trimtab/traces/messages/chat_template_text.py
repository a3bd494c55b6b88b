"""Text that a chat template made, back to who said what: by its special tokens, or by the role words that are
left of them.

Decoding with `skip_special_tokens=True`, as verl does, leaves of `<|im_start|>user` a line `user`. Such lines
are taken for roles where a template would have put them: at the start of a prompt, and in the order in which
speakers take turns.
"""

from __future__ import annotations

import re
from typing import Any

from trimtab.traces.core.episode import Turn
from trimtab.traces.core.json_text import BadJson, parse_json
from trimtab.traces.core.read_report import ReadReport
from trimtab.traces.core.tool_schemas import tools_of

_MARK = re.compile(r"<\|im_start\|>(\w+)[ \t]*\n?|<\|start_header_id\|>(\w+)<\|end_header_id\|>\s{0,2}")
_END = re.compile(
    r"<\|(?:im_start|im_end|eot_id|eom_id|begin_of_text|end_of_text|endoftext|start_header_id|end_header_id)\|>"
)
_LINE = re.compile(r"^(system|user|assistant|model|tool)(?:\n|\Z)", re.M)
_GLUED = re.compile(r"assistant[ \t]*\n\s{0,2}\Z|(?:ASSISTANT|Assistant):\s{0,4}\Z|\[/INST\]\s{0,4}\Z")
_SAME = {"model": "assistant"}  # Gemma's word
_NEXT = {"": ("system", "user"), "system": ("user",), "user": ("assistant",), "assistant": ("user", "tool"),
    "tool": ("assistant", "tool")}  # fmt: skip
_TOOLS = re.compile(r"<tools>\n(.*?)\n</tools>", re.S)
_TOOL_SECTION = re.compile(
    r"\s*(?:# Tools\b(?:(?!# Tools\b).)*?)?<tools>\n.*?\n</tools>(?:\s*For each function "
    r"call,.*?\n</tool_call>)?\s*",
    re.S,
)
_SPLIT = "texts split into turns at role words that a chat template left"


def prompt_turns(text: str, report: ReadReport) -> tuple[list[Turn], list[dict[str, Any]] | None, str]:
    """Turns of a prompt, the tools in its system prompt, and what it already put into the agent's mouth.

    Plain text is a user's turn. Where a role word at the end says that a template made it, but not where its
    turns begin, it is one turn of the role `prompt`, which exports leave out and count.

    >>> turns, _, _ = prompt_turns("system\\nBe nice.\\nuser\\n2+2?\\nassistant\\n", ReadReport())
    >>> [(turn.role, turn.content) for turn in turns]
    [('system', 'Be nice.'), ('user', '2+2?')]
    """
    lines = _by_lines(text, "")
    parts = _marked(text) or (lines if lines and lines[-1][0] == "assistant" else None)
    if parts is None:
        glued = _GLUED.search(text) is not None
        if glued:
            report.note(
                "prompts whose chat template left no line for each role, kept whole and not for training"
            )
        return [Turn(role="prompt" if glued else "user", content=text, step=0)], None, ""
    if not _MARK.search(text):
        report.note(_SPLIT)
    opened = parts.pop()[1] if parts[-1][0] == "assistant" else ""
    tools = None
    turns: list[Turn] = []
    for role, content in parts:
        if role == "system" and (declared := _TOOLS.search(content)):
            tools = _tools(declared[1])
            if tools:  # the template writes them anew
                content = _TOOL_SECTION.sub("\n", content).strip()
        if content or role != "system":
            turns.append(Turn(role=role, content=content, step=len(turns)))
    return turns, tools, opened


def parts_of_completion(text: str, report: ReadReport) -> list[tuple[str, str]]:
    """Role and text of each part of what came after the prompt; the first is the assistant's.

    >>> parts_of_completion("Let me see.\\nuser\\n<tool_response>4</tool_response>\\nassistant\\nIt is 4.",
    ...     ReadReport())
    [('assistant', 'Let me see.'), ('user', '<tool_response>4</tool_response>'), ('assistant', 'It is 4.')]
    """
    marked = _marked(f"<|im_start|>assistant\n{text}")
    if marked is not None and len(marked) > 1:
        return marked
    plain = _END.sub("", text)
    parts = _by_lines(plain, "assistant")
    if parts is None or len(parts) < 2:
        return [("assistant", plain.strip())]
    report.note(_SPLIT)
    return parts


def _marked(text: str) -> list[tuple[str, str]] | None:
    marks = list(_MARK.finditer(text))
    if not marks or _END.sub("", text[: marks[0].start()]).strip():
        return None
    ends = [mark.start() for mark in marks[1:]] + [len(text)]
    return [
        (mark[1] or mark[2], _END.sub("", text[mark.end() : end]).strip())
        for mark, end in zip(marks, ends, strict=True)
    ]


def _by_lines(text: str, speaker: str) -> list[tuple[str, str]] | None:
    """Parts at lines that are a role word; None where the text does not begin with one, and nobody speaks
    yet."""
    parts: list[tuple[str, int, int]] = [] if not speaker else [(speaker, 0, 0)]
    marks = [(m, _SAME.get(m[1], m[1])) for m in _LINE.finditer(text)]
    last = max((m.start() for m, role in marks if role == "assistant"), default=-1)
    starts = {match.start() for match, _ in marks}
    for match, role in marks:
        if role not in _NEXT[speaker] or (not speaker and match.start()):
            if not speaker:
                return None
            continue
        answered = match.start() < last or text.startswith("<tool_response>", match.end())
        silent = match.end() in starts and match.start() > 0
        if role in ("user", "tool") and speaker == "assistant" and (silent or not answered):
            continue  # the agent's own line: nobody says anything there, or nobody answers it
        speaker = role
        parts.append((speaker, match.start(), match.end()))
    if not parts:
        return None
    ends = [start for _, start, _ in parts[1:]] + [len(text)]
    return [(role, text[at:end].strip()) for (role, _, at), end in zip(parts, ends, strict=True)]


def _tools(text: str) -> list[dict[str, Any]] | None:
    """One tool a line, as Hermes' and Qwen's templates write them; None where a line is none."""
    try:
        return tools_of([parse_json(line) for line in text.splitlines() if line.strip()]) or None
    except BadJson:
        return None
