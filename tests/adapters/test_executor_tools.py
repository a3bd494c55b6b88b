"""An executor's functions as TRL's `tools=`: called in TRL's own loop, recorded once, with blame; a broken row has no vote."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from transformers import LlamaForCausalLM
from trl import GRPOTrainer

pytest.importorskip("jsonschema_rs")

from tests.adapters.tiny_trl import chat_rows, grpo_config, random_reward, scripted, tiny_model, tool_call
from trimtab.adapters.trl import exclude_broken, watch
from trimtab.runs import RunReader
from trimtab.tools import Executor, tool
from trimtab.tools.blocking import ExecutorThread


async def read_file(path: str) -> str:
    """Read a file.

    Args:
        path: Which one.

    Returns:
        Its text.
    """
    if path == "f0":
        raise ConnectionResetError("the file server is gone")
    return f"text of {path}"


def test_trl_calls_the_executor_and_a_broken_row_has_no_vote(tmp_path: Path) -> None:
    path, tokenizer = tiny_model(tmp_path / "model")

    def turn(row: int, results: int) -> str:
        names = {0: tool_call("read_file", path="f0"), 1: tool_call("read_file", path=7)}
        return names.get(row, tool_call("read_file", path="f2")) if results < 1 else "fin<|im_end|>"

    batches: list[dict[str, Any]] = []
    with ExecutorThread(Executor([tool(read_file)])) as thread:
        (function,) = thread.functions()
        assert function.__name__ == "read_file"
        trainer = GRPOTrainer(
            scripted(LlamaForCausalLM.from_pretrained(path), tokenizer, turn), [random_reward],
            args=grpo_config(tmp_path, max_completion_length=400, max_steps=2), train_dataset=chat_rows(),
            processing_class=tokenizer, tools=[function],
        )  # fmt: skip
        broken = exclude_broken(trainer)
        inner = trainer._generate_and_score_completions

        def generate(inputs: Any) -> Any:
            batches.append(inner(inputs))
            return batches[-1]

        trainer._generate_and_score_completions = generate
        watch(trainer, tmp_path / "run", reference="off", probes="off", strict=True)
        trainer.train()
    assert (broken.num_rows, broken.num_excluded) == (8, 2)
    for batch in batches:
        assert batch["advantages"][0] == 0
        assert batch["advantages"][1:].ne(0).all()
        assert batch["tool_mask"].any(dim=1).tolist() == [False, True, True, True]
        assert float(batch["advantages"].sum()) == pytest.approx(0, abs=1e-5)
    calls = [
        (row["arguments"]["path"], row.get("blame", ""), row.get("kind", ""))
        for row in RunReader(tmp_path / "run").rows("tools")
    ]
    once = [
        ("f0", "infrastructure", "connection"),
        (7, "policy", "bad_arguments"),
        ("f2", "", ""),
        ("f2", "", ""),
    ]
    assert sorted(calls, key=str) == sorted(2 * once, key=str)
