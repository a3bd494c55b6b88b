"""One small record of each format, in the shape its writer gives it (facts: docs/how-to/agent-logs.md); invented content."""

from __future__ import annotations

import json
from typing import Any

from tests.traces.make import chat, steps, tau

HERMES = 'I look.<tool_call>\n{"name": "search", "arguments": {"q": "x"}}\n</tool_call><|im_end|>\n<tool_response>\nError: no rows\n</tool_response>\n<|im_start|>assistant\nNothing there.'


def _attribute(key: str, value: Any) -> dict[str, Any]:
    kind = (
        "intValue" if isinstance(value, int) else "doubleValue" if isinstance(value, float) else "stringValue"
    )
    if isinstance(value, list):
        return {"key": key, "value": {"arrayValue": {"values": [{"stringValue": item} for item in value]}}}
    return {"key": key, "value": {kind: str(value) if isinstance(value, int) else value}}


T0 = 1_763_740_000
"""What collectors write is nanoseconds since 1970, as text: beyond what a float holds."""


def _span(start: int, end: int, attributes: dict[str, Any], **more: Any) -> dict[str, Any]:
    times = {"startTimeUnixNano": str((T0 + start) * 10**9), "endTimeUnixNano": str((T0 + end) * 10**9)}
    return {
        "traceId": "t2" if "session.id" in attributes else "t1",
        "spanId": str(start),
        **times,
        "attributes": [_attribute(k, v) for k, v in attributes.items()],
        **more,
    }


def otlp() -> dict[str, Any]:
    said = json.dumps([{"role": "assistant", "parts": [{"type": "text", "content": "I look."}]}])
    asked = json.dumps([{"role": "user", "parts": [{"type": "text", "content": "Where?"}]}])
    spans = [
        _span(3, 5, {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "search", "gen_ai.tool.call.arguments": '{"q": "x"}', "gen_ai.tool.call.result": "r"}, status={"code": 2, "message": "timeout"}),
        _span(1, 2, {"gen_ai.operation.name": "chat", "gen_ai.input.messages": asked, "gen_ai.output.messages": said, "gen_ai.usage.output_tokens": 7, "gen_ai.request.model": "m", "gen_ai.response.finish_reasons": ["stop"]}),
        _span(6, 7, {"gen_ai.evaluation.name": "judge", "gen_ai.evaluation.score.value": 0.5}),
    ]  # fmt: skip
    return {"resourceSpans": [{"resource": {}, "scopeSpans": [{"spans": spans}]}]}


def openinference() -> dict[str, Any]:
    spans = [
        _span(1, 2, {"openinference.span.kind": "LLM", "session.id": "s1", "input.value": "Where?", "output.value": "I look.", "llm.token_count.completion": 3}),
        _span(2, 3, {"openinference.span.kind": "TOOL", "session.id": "s1", "tool.name": "search", "input.value": "x", "output.value": "Error: no"}),
    ]  # fmt: skip
    return {"resourceSpans": [{"scopeSpans": [{"spans": spans}]}]}


def inspect() -> dict[str, Any]:
    call = {"id": "c", "function": "search", "arguments": {"q": "x"}, "type": "function"}
    messages = [
        {"role": "user", "content": [{"type": "text", "text": "Where?"}]},
        {"role": "assistant", "content": "I look.", "tool_calls": [call]},
        {
            "role": "tool",
            "tool_call_id": "c",
            "function": "search",
            "content": "",
            "error": {"type": "timeout", "message": "5 s"},
        },
    ]
    sample = {
        "id": 1,
        "epoch": 2,
        "messages": messages,
        "scores": {"match": {"value": "C"}, "grade": {"value": 0.3}},
        "total_time": 4.0,
    }
    return {
        "version": 2,
        "status": "success",
        "eval": {"model": "m"},
        "samples": [sample, {**sample, "epoch": 3, "limit": {"type": "message", "limit": 9}}],
    }


def swe() -> dict[str, Any]:
    history = [
        {"role": "system", "content": "You fix."},
        {"role": "user", "content": "demo", "is_demo": True},
        {"role": "user", "content": "Issue."},
    ]
    steps = [
        {
            "action": "open a.py\n",
            "observation": "text",
            "thought": "Look first.",
            "response": "…",
            "execution_time": 0.5,
        },
        {"action": "", "observation": "", "thought": "Hm.", "response": "Hm."},
    ]
    info = {"exit_status": "submitted", "model_stats": {"instance_cost": 0.1, "tokens_received": 9}}
    return {"trajectory": steps, "history": history, "info": info, "environment": "e"}


def mini() -> dict[str, Any]:
    messages = [
        {"role": "system", "content": "You fix."},
        {"role": "user", "content": "Issue."},
        {"role": "assistant", "content": "THOUGHT: look\n\n```bash\nls -la\n```", "timestamp": T0 + 1.0},
        {"role": "user", "content": "<returncode>1</returncode>\n<output>\nls: cannot access\n</output>"},
        {
            "role": "assistant",
            "content": "THOUGHT: done\n\n```bash\necho COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT\n```",
        },
    ]
    info = {"exit_status": "LimitsExceeded", "submission": "diff", "model_stats": {"instance_cost": 0.1}}
    return {
        "info": info,
        "messages": messages,
        "trajectory_format": "mini-swe-agent-1",
        "instance_id": "d__d-1",
    }


def verifiers() -> dict[str, Any]:
    completion = chat()[1:]
    completion[0]["tool_calls"] = [json.dumps(completion[0]["tool_calls"][0])]
    return {
        "example_id": 4, "task": "env", "prompt": chat()[:1], "completion": completion, "reward": 0.5, "metrics": {"format": 1.0}, "answer": "x",
        "is_completed": True, "is_truncated": True, "stop_condition": "max_turns_reached", "tool_defs": [{"name": "search"}],
    }  # fmt: skip


def verifiers_trace() -> dict[str, Any]:
    call = {"id": "c", "type": "function", "name": "search", "arguments": '{"q": "x"}'}
    messages = [{"role": "user", "content": "Where is x?"}, {"role": "assistant", "tool_calls": [call]}]
    messages += [
        {"role": "tool", "tool_call_id": "c", "content": "Error: no rows"},
        {"role": "assistant", "content": "No."},
    ]
    nodes = [
        {"parent": i - 1 if i else None, "message": m, "timestamp": T0 + 1.0} for i, m in enumerate(messages)
    ]
    calls = [
        {"node": 1, "model": "m", "finish_reason": "stop", "usage": {"completion_tokens": 4, "cost": 0.1}}
    ]
    trace = {
        "id": "vt", "task": {"data": {"idx": 3}, "key": "k", "hash": "h"}, "agent": {"name": "a", "trainable": True, "config": {"model": "m"}},
        "nodes": nodes, "calls": calls, "tools": [{"name": "search"}], "rewards": {"right": {"score": 1.0, "weight": 0.5}},
        "metrics": {"len": 3.0}, "ok": True, "errors": [], "stop_condition": "max_turns",
        "timing": {"start": T0, "agent": {"start": T0, "end": T0 + 2}},
    }  # fmt: skip
    run = {"work": {"step": 3, "policy": {"start": 2, "end": 3}}}
    return {
        "id": "e",
        "env": {"id": "gsm"},
        "task": trace["task"],
        "group": {"id": "g"},
        "run": run,
        "traces": [trace],
    }


def tau2() -> dict[str, Any]:
    messages = [
        {"role": "user", "content": "Where is x?"},
        {"role": "assistant", "tool_calls": [{"id": "c", "name": "search", "arguments": {"q": "x"}}], "usage": {"completion_tokens": 4}},
        {"role": "tool", "tool_messages": [{"role": "tool", "id": "c", "content": "no", "error": True}]},
        {"role": "user", "tool_calls": [{"id": "u", "name": "look", "arguments": {}, "requestor": "user"}]},
    ]  # fmt: skip
    return {
        "id": "t2", "task_id": "4", "trial": 1, "seed": 3, "termination_reason": "max_steps", "duration": 3.0, "agent_cost": 0.1,
        "messages": messages, "reward_info": {"reward": 1.0, "reward_breakdown": {"DB": 1.0}},
    }  # fmt: skip


def prime() -> dict[str, Any]:
    return {
        "schema_version": 1,
        "step": 3,
        "env_name": "e",
        "token_ids": [1, 2, 3],
        "loss_mask": [0, 1, 1],
        "advantages": [0.0, 0.5, 0.5],
        "inference_logprobs": [0.0, -0.5, None],
    }


def nemo() -> dict[str, Any]:
    """A line of NeMo RL's train_data_step<N>.jsonl, after `log_batched_dict_as_jsonl` of 7ea279a: padded to the batch."""
    return {
        "content": [["2 + 2?", "4"]], "rewards": [0.5], "input_lengths": [3], "token_ids": [[1, 2, 3, 0]], "token_loss_mask": [[0, 1, 1, 0]],
        "sample_loss_mask": [1.0], "advantages": [[0.0, 0.5, 0.5, 0.0]], "generation_logprobs": [[0.0, -0.5, -1.0, 0.0]],
        "prev_logprobs": [[0.0, -0.75, -1.0, 0.0]], "idx": 0,
    }  # fmt: skip


def verl() -> dict[str, Any]:
    return {
        "input": "user\nWhere?",
        "output": HERMES,
        "gts": "x",
        "score": 0.25,
        "step": 7,
        "acc": True,
        "format": 1.0,
    }


def trl() -> dict[str, Any]:
    return {
        "step": 5,
        "prompt": "Where?",
        "completion": HERMES,
        "format_reward": 0.5,
        "answer_reward": 1.0,
        "advantage": -0.1,
    }


def own() -> dict[str, Any]:
    call = {"name": "search", "arguments": {"q": "x"}, "result": "found"}
    return {
        "trimtab": 1,
        "id": "o",
        "turns": [{"role": "user", "content": "?"}, {"role": "assistant", "calls": [call]}],
        "reward": 1.0,
    }


def dialects() -> list[dict[str, Any]]:
    """The same chat as ShareGPT, Gemini, Bedrock and Anthropic write it, with OpenAI's custom tools and text that spells its turns out."""
    ask, args = "Where is x?", {"q": "x"}
    sharegpt = [
        {"from": "human", "value": ask},
        {"from": "function_call", "value": json.dumps({"name": "search", "arguments": args})},
        {"from": "observation", "value": "found"}, {"from": "gpt", "value": "There."},
    ]  # fmt: skip
    gemini = [
        {"role": "user", "parts": [{"text": ask}]},
        {"role": "model", "parts": [{"functionCall": {"name": "search", "args": args}}]},
        {
            "role": "user",
            "parts": [{"functionResponse": {"name": "search", "response": {"result": "found"}}}],
        },
        {"role": "model", "parts": [{"text": "There."}]},
    ]
    bedrock = [
        {"role": "user", "content": [{"text": ask}]},
        {"role": "assistant", "content": [{"toolUse": {"toolUseId": "t", "name": "search", "input": args}}]},
        {"role": "user", "content": [{"toolResult": {"toolUseId": "t", "content": [{"json": {"a": 1}}], "status": "error"}}]},
    ]  # fmt: skip
    server = [
        {"type": "server_tool_use", "id": "s", "name": "web_search", "input": args},
        {"type": "web_search_tool_result", "tool_use_id": "s", "content": [{"type": "web_search_result", "url": "u"}]},
        {"type": "text", "text": "There."},
    ]  # fmt: skip
    custom = [{"id": "1", "type": "custom", "custom": {"name": "run", "input": "1+1"}}]
    items = [
        {"role": "user", "content": [{"type": "input_text", "text": ask}]},
        {"type": "reasoning", "summary": [{"type": "summary_text", "text": "hm"}], "encrypted_content": "g"},
        {"type": "function_call", "call_id": "c", "name": "search", "arguments": json.dumps(args)},
        {"type": "mcp_call", "id": "m", "name": "ask", "arguments": "{}", "output": "yes", "error": None},
        {"type": "web_search_call", "id": "w", "status": "completed", "action": {"query": "q", "sources": [{"url": "u"}]}},
        {"type": "shell_call", "call_id": "s", "action": {"commands": ["ls"]}},
        {"type": "shell_call_output", "call_id": "s", "output": [{"stdout": "", "outcome": {"type": "exit", "exit_code": 2}}]},
        {"type": "function_call_output", "call_id": "c", "output": "found"},
        {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "There."}]},
        {"type": "compaction", "encrypted_content": "g"},
    ]  # fmt: skip
    langchain = [
        {"type": "human", "content": ask},
        {"lc": 1, "id": ["langchain", "AIMessage"], "kwargs": {"content": "", "tool_calls": [{"name": "search", "args": args, "id": "c"}], "invalid_tool_calls": [{"name": "w", "args": "{bad", "id": "d", "error": "x"}], "usage_metadata": {"output_tokens": 3}}},
        {"type": "tool", "content": "found", "tool_call_id": "c", "status": "error"},
        {"type": "ai", "data": {"content": "There.", "additional_kwargs": {"tool_calls": []}}},
    ]  # fmt: skip
    vercel = [
        {"role": "user", "content": ask},
        {"role": "assistant", "content": [{"type": "text", "text": "a"}, {"type": "tool-call", "toolCallId": "c", "toolName": "search", "input": args}]},
        {"role": "tool", "content": [{"type": "tool-result", "toolCallId": "c", "toolName": "search", "output": {"type": "content", "value": [{"type": "text", "text": "found"}]}}]},
        {"role": "assistant", "parts": [{"type": "step-start"}, {"type": "tool-search", "toolCallId": "d", "state": "output-error", "input": args, "errorText": "no"}, {"type": "step-start"}, {"type": "text", "text": "b"}]},
        {"role": "assistant", "content": "c", "toolInvocations": [{"state": "result", "toolCallId": "e", "toolName": "search", "args": args, "result": {"a": 1}}]},
    ]  # fmt: skip
    choices = [
        {
            "finish_reason": "stop",
            "message": {"role": "assistant", "content": "There.", "audio": {"transcript": "There."}},
        },
        {},
    ]
    details = [{"type": "reasoning.text", "text": "hm"}, {"type": "reasoning.encrypted"}]
    spelt = "\n\nHuman: Where?\n\nAssistant: "
    return [
        {"conversations": sharegpt, "tools": json.dumps([{"name": "search"}])},
        {"contents": gemini, "tools": [{"functionDeclarations": [{"name": "search"}]}]},
        {"messages": bedrock, "toolConfig": {"tools": [{"toolSpec": {"name": "search", "inputSchema": {"json": {}}}}]}},
        {"messages": [{"role": "user", "content": ask}, {"role": "assistant", "content": server}]},
        {"messages": [{"role": "assistant", "content": None, "refusal": "No.", "tool_calls": custom}, {"role": "tool", "status": "error", "content": "e"}]},
        {"messages": items, "tools": ["search"]},
        {"messages": langchain, "system_prompt": "Be nice."},
        {"messages": vercel},
        {"contents": gemini[:1], "config": {"systemInstruction": "s", "tools": [{"name": "search"}]}},
        {"messages": [{"role": "user", "content": ask}], "choices": choices},
        {"messages": [{"role": "assistant", "content": [], "reasoning_details": details}], "response": {"output": items[1:3]}, "label": True},
        {"chosen": f"{spelt}There.", "rejected": f"{spelt}Nowhere."},
    ]  # fmt: skip


RECORDS: dict[str, list[Any]] = {
    "trimtab": [own()], "steps": steps("s"), "tau": [tau(1, 2, 1.0, chat()), tau2()], "otlp": [otlp(), openinference()], "inspect": [inspect()],
    "swe-agent": [swe()], "mini-swe-agent": [mini()], "verifiers": [verifiers(), verifiers_trace()], "prime-rl": [prime()], "nemo-rl": [nemo()], "verl": [verl()], "trl": [trl()],
    "messages": [{"id": "m", "messages": chat(), "reward": 1.0}, {"prompt": chat()[:1], "chosen": chat()[1:], "rejected": chat()[1:3], "score_chosen": 2}, *dialects()],
}  # fmt: skip
