"""The process that holds a user's reward function: `python -m trimtab.rewards.function_worker SPEC`.

A function under test may hang, exit, print or crash; so it has a process of its own. Requests and answers
are lines of JSON on standard input and on a copy of standard output; what the function prints goes to
standard error.
"""

from __future__ import annotations

import json
import logging
import os
import sys
import time
from collections.abc import Callable
from typing import Any, TextIO

from trimtab.errors import RewardError
from trimtab.rewards.function_call import Signature, call_function, load_function, signature_of


def main(spec: str) -> None:
    """Load the function, then answer requests until standard input ends."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8", buffering=1)
    os.dup2(2, 1)
    logging.disable(logging.WARNING)
    try:
        function = load_function(spec)
        signature = signature_of(function)
    except RewardError as error:
        _answer(answers, {"error": str(error)})
        return
    except Exception as error:  # importing the user's module may raise anything
        _answer(answers, {"error": f"{spec} cannot be imported: {type(error).__name__}: {error}"})
        return
    _answer(answers, {"batch": signature.batch, "parameters": signature.parameters})
    for line in sys.stdin:
        _answer(answers, _reply(function, signature, json.loads(line)))


def _reply(function: Callable[..., Any], signature: Signature, request: dict[str, Any]) -> dict[str, Any]:
    """Rewards and seconds, or the error."""
    called = Signature(
        signature.batch, signature.parameters, signature.open, conversational=request["conversational"]
    )
    start = time.perf_counter()
    try:
        rewards = call_function(
            function, called, request["prompts"], request["completions"], request["columns"]
        )
    except RewardError as error:
        return {"error": str(error), "kind": "result"}
    except SystemExit as error:
        return {"error": f"SystemExit: {error}", "kind": "exception"}
    except Exception as error:  # the function under test may raise anything; it becomes a finding
        text = " ".join(str(error).split())[:300]
        return {"error": f"{type(error).__name__}: {text}", "kind": "exception"}
    return {"rewards": rewards, "seconds": time.perf_counter() - start}


def _answer(stream: TextIO, value: dict[str, Any]) -> None:
    stream.write(json.dumps(value) + "\n")
    stream.flush()


if __name__ == "__main__":
    main(sys.argv[1])
