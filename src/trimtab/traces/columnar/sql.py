"""The SQL that reads step JSONL: one statement a shard, of the columns the checks need."""

from __future__ import annotations

from collections.abc import Sequence
from string import Template

from trimtab.traces.core.coerce import FLAGS
from trimtab.traces.errors.detect import BLANKS, NO_ERROR, ONLY_SAYS_SO
from trimtab.traces.errors.patterns import MAYBE_ERROR
from trimtab.traces.readers.ptt_steps.field_names import KINDS
from trimtab.traces.table.language import (
    BETWEEN,
    IN_A_ROW,
    LOOKED_AT,
    MIN_LETTERS,
    REFUSAL_HEAD,
    REFUSAL_WORDS,
    SCRIPTS,
)

OTHER, CALL, RESULT, PARSE_ERROR, MESSAGE, END, VOID, USER, SYSTEM, REFUSAL = range(10)
BAD = -1
"""Kinds of rows. VOID, REFUSAL: an assistant's message without text, or that opens as one. USER, SYSTEM: words of the prompt. BAD: no step."""

UNREAD = -2
"""Code of a success that is neither true nor false."""

NEW_TOOL = -2
"""Code of a tool that was not known; -1: the step names none."""

MAX_BYTES = (16 * 2**20, 64 * 2**20, 256 * 2**20)
"""The longest line, tried in turn; DuckDB holds twice as much."""

_CODES = {
    "tool_call": CALL,
    "tool_result": RESULT,
    "tool_parse_error": PARSE_ERROR,
    "assistant_message": MESSAGE,
    "episode_end": END,
    "user_message": USER,
    "system": SYSTEM,
    "developer": SYSTEM,
}
_NUMBERS = ("step", "tokens", "reward", "total_tokens", "total_cost", "latency_s", "duration_s")
_TEXTS = (
    "episode_id", "timestamp", "type", "tool", "args", "result", "error", "content", "success",
)  # fmt: skip
_MAX_KNOWN = 64  # names compared in SQL; the rest come out as text

_BLANK = r"[\x09-\x0d\x1c-\x1f\x{85}\p{Z}]*"  # what Python's strip takes off
_INK = "ascii(content) between 33 and 126"  # most text starts so, and needs no pattern

_NOTHING = f"content is null or (not {_INK} and regexp_full_match(content, '{_BLANK}'))"  # to read


def _said(kind: int) -> str:
    """What stands for the words of a prompt; 0 for none."""
    return f"case when {_NOTHING} then 0::ubigint else hash({'content' if kind == USER else 'type, content'}) end"


_SPOKEN = "type = 'assistant_message'"
_KIND = (
    "case type " + " ".join(f"when '{name}' then '{kind}'" for name, kind in KINDS.items()) + " else type end"
)


def _letters(*names: str, but: bool = False) -> str:
    """A class of the letters of these scripts, or of all others."""
    spans = "".join(rf"\x{{{low:x}}}-\x{{{high:x}}}" for name in names for low, high in SCRIPTS[name])
    return f"[{'^' if but else ''}{spans}]"


_LATIN = _letters("Latin")
_SOME_LATIN = f"(?:{_LATIN}{_letters('Latin', but=True)}*){{{MIN_LETTERS - 1}}}{_LATIN}"
_IN_A_ROW = rf"{_LATIN}{BETWEEN}(?:{_LATIN}+{BETWEEN}){{{IN_A_ROW - 2}}}{_LATIN}"
_LATIN_SAID = (
    f"(case when words is null then 0 when {_SPOKEN} then (regexp_matches(words, '{_IN_A_ROW}') and regexp_matches(words, '{_SOME_LATIN}'))::utinyint "
    f"else regexp_matches(words, '{_LATIN}')::utinyint end)::utinyint"
)
_WORD = f"case when error is not null then lower(trim(error, '{BLANKS}')) end"


def _among(words: Sequence[str]) -> str:
    return "(" + ", ".join(f"'{word}'" for word in words) + ")"


_FAILED = f"coalesce(word not in {_among(NO_ERROR)}, false)"
_FLAGS = " ".join(f"when '{word}' then {int(flag)}" for word, flag in FLAGS.items())
_FOREIGN = _letters(*(name for name in SCRIPTS if name != "Latin"))

_SELECT = Template(rf"""
select
    hash(episode_id) as eh,
    coalesce(step, 'nan') as step,
    (case when episode_id is null or type is null then {BAD}
          when {_SPOKEN} and ({_NOTHING}) then {VOID}
          else case type {" ".join(f"when '{name}' then {code}" for name, code in _CODES.items())} else {OTHER} end
     end)::tinyint as kind,
    (case coalesce(tool, '') when '' then -1 $cases else {NEW_TOOL} end)::integer as tool,
    case when (case coalesce(tool, '') when '' then -1 $cases else {NEW_TOOL} end) = {NEW_TOOL} then tool end as new_tool,
    case type when 'tool_call' then hash(args) when 'tool_result' then hash(coalesce(result, content, ''))
              when 'tool_parse_error' then hash(coalesce(content, args))
              {" ".join(f"when '{name}' then {_said(code)}" for name, code in _CODES.items() if code in (USER, SYSTEM))}
              when 'assistant_message' then hash(content) when 'episode_end' then 0::ubigint else hash(type, content) end as h,
    $time as ts,
    case when type = 'tool_result' then coalesce(latency_s, duration_s, 'nan') else 'nan' end as latency,
    coalesce(tokens, 'nan') as tokens,
    type = 'tool_result' and ($failed or coalesce(word = 'false', false)) as told,
    left(case when type = 'tool_result' then
           case when $failed then case when $bare then coalesce(nullif(coalesce(result, content), ''), 'error') else error end
                when word = 'false' then null
                when regexp_matches(coalesce(result, content), '{MAYBE_ERROR}', 'i') then coalesce(result, content) end
         when type = 'tool_parse_error' then coalesce(nullif(error, ''), 'the call could not be parsed')
         when {_SPOKEN} and regexp_matches(left(content, {REFUSAL_HEAD}), '{REFUSAL_WORDS}', 'i') then content end, 400) as err,
    coalesce(starts_with(content, '[{{') or starts_with(result, '[{{') or starts_with(error, '[{{'), false) as parts,
    $latin as latin,
    case when strlen(words) <> length(words) and regexp_matches(words, '{_FOREIGN}') then words end as words,
    case when step is null or step = 0 or type = 'episode_end' then episode_id end as name,
    reward,
    (case when type = 'episode_end' then
        case lower(success) $flags else case when success is null then -1 else case try_cast(success as double) when 1 then 1 when 0 then 0 else {UNREAD} end end end
     else -1 end)::tinyint as success,
    total_tokens as total,
    total_cost as cost,
    case when step is null or step = 0 or type = 'episode_end' then coalesce($task) end as task,
    case when step is null or step = 0 or type = 'episode_end' then coalesce($group) end as "group",
    case when type = 'episode_end' then coalesce($stop) end as stop
from (
    select *, case when strlen(said) > {LOOKED_AT} then left(said, {LOOKED_AT}) else said end as words
    from (
        select *, case when type = 'tool_result' then $heard
                       when type not in ('tool_call', 'tool_parse_error', 'episode_end') then content end as said
        from (select * replace ({_KIND} as type), $word as word from read_json(?, format = 'newline_delimited', columns = $columns, ignore_errors = true, maximum_object_size = $size))
    )
)
""")
_NAMES = {
    "task": ("task_id", "task", "prompt_id"),
    "group": ("group_id", "group"),
    "stop": ("stop_reason", "termination_reason"),
}
"""What a row may call each thing, in its metadata or beside it."""
_TIMES = {
    True: "coalesce(timestamp, 'nan')",
    False: "coalesce(case when try_cast(timestamp as double) is not null then try_cast(timestamp as double) "
    "else epoch(try_cast(timestamp as timestamptz)) end, 'nan')",
}


def rows_query(tools: Sequence[str], numeric_time: bool, scripts: bool, max_bytes: int) -> str:
    """Rows of a shard; its path is the parameter. Without `scripts`, the words of other scripts than Latin are looked for in messages
    only, and nothing is said of Latin: where no message has any, none switches."""
    known = [(_quoted(t), place) for place, t in enumerate(tools[:_MAX_KNOWN]) if t and _is_sql(t)]
    numbers = (*_NUMBERS, "timestamp") if numeric_time else _NUMBERS
    fields = [name for names in _NAMES.values() for name in names]
    kinds = {name: "DOUBLE" if name in numbers else "VARCHAR" for name in (*_TEXTS, *_NUMBERS, *fields)}
    kinds["metadata"] = "STRUCT(" + ", ".join(f'"{name}" VARCHAR' for name in fields) + ")"
    said = {
        what: ", ".join(f'"{name}", metadata."{name}"' for name in names) for what, names in _NAMES.items()
    }
    return _SELECT.substitute(
        said,
        failed=_FAILED,
        bare=f"word in {_among(ONLY_SAYS_SO)}",
        word=_WORD,
        flags=_FLAGS,
        heard="coalesce(result, content)" if scripts else "null",
        latin=_LATIN_SAID.replace("$", "$$") if scripts else "0::utinyint",
        cases=" ".join(f"when {name} then {place}" for name, place in known),
        time=_TIMES[numeric_time],
        columns="{" + ", ".join(f"'{name}': '{kind}'" for name, kind in kinds.items()) + "}",
        size=max_bytes,
    )


def ids_query(max_bytes: int) -> str:
    """Ids of a shard's episodes with their hashes."""
    return (
        "select distinct hash(episode_id) as eh, episode_id as id from read_json(?, format = 'newline_delimited', "
        f"columns = {{episode_id: 'VARCHAR'}}, ignore_errors = true, maximum_object_size = {max_bytes}) where episode_id is not null"
    )


def _is_sql(text: str) -> bool:
    """May it stand in a statement? Not a lone surrogate, which no UTF-8 holds."""
    try:
        return b"\0" not in text.encode()
    except UnicodeEncodeError:
        return False


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
