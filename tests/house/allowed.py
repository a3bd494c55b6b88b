"""What still breaks a rule of the house. A list may only shrink."""

from __future__ import annotations

OUTSIDE_40_TO_300_LINES = (
    "_version.py",
    "adapters/verl/plugin.py",
    "traces/core/plural.py",
    "typing.py",
)
"""Modules of fewer than 40 or more than 300 lines."""

SHARED_STEMS = ("__main__",)
"""Names that more than one module has."""

LONG_SIGNATURES = (
    "adapters/trl/attach.py:watch",
    "adapters/verl/policy_losses.py:policy_loss.loss",
    "capture/batch.py:token_batch",
    "measure/traces/builder.py:Maker.share",
    "measure/traces/builder.py:Maker.value",
    "monitor/factory.py:open_run",
    "objectives/corrections.py:mis",
    "objectives/decoupled.py:decoupled_kl",
    "objectives/decoupled.py:decoupled_ppo",
    "objectives/kl_penalties.py:kl_penalty",
    "objectives/policy_gradient.py:cispo",
    "objectives/policy_gradient.py:minirl",
    "objectives/policy_gradient.py:reinforce",
    "objectives/ppo.py:dapo",
    "objectives/ppo.py:dr_grpo",
    "objectives/ppo.py:grpo",
    "objectives/ppo.py:gspo",
    "objectives/ppo.py:ppo_clip",
    "report/traces/compare.py:compare_traces",
    "report/traces/trace_diagnosis.py:diagnose_traces",
    "report/traces/live_diagnosis.py:follow_traces",
    "report/traces/show.py:show",
    "training/lab_grpo.py:lab_trainer",
)
"""Functions of more than six parameters."""

UNDOCUMENTED_FACES = ("trimtab.cli.main",)
"""Public functions without sections in their docstrings."""

BROAD_HANDLERS = {
    "adapters/trl/callback.py": (1, "how training ended is recorded, and what was raised is raised on"),
    "cli/__init__.py": (
        1,
        "the last handler of the command: one line and exit code 2, never 1, which says alarms",
    ),
    "monitor/isolation.py": (1, "any failure of the monitor is recorded, so that training goes on"),
    "monitor/ending/post_mortem_writer.py": (
        1,
        "what ended the run counts; a post-mortem that cannot be written is one line in the log",
    ),
    "preflight/section_worker.py": (
        1,
        "a section may raise anything; its traceback is printed, and no thread is waited for",
    ),
    "rewards/function_worker.py": (
        2,
        "a user's reward function and its module may raise anything; it becomes a finding",
    ),
    "sinks/run_export.py": (1, "a tracker's library may raise anything; one line and exit code 2"),
    "sinks/sink_worker.py": (1, "a tracker's library or a user's sink may raise anything; it is counted"),
    "report/traces/token_colors.py": (1, "tokenizers raises Exception itself for a bad file"),
    "adapters/trl/control/broken_rows.py": (
        2,
        "tools may raise anything; whose failure it was is noted, and it is raised on",
    ),
    "tools/batch_budget.py": (
        1,
        "an episode may raise anything; what is not the infrastructure's is raised on",
    ),
    "tools/executor.py": (1, "tools may raise anything; it becomes a failure with its blame"),
    "tools/targets/mcp_server.py": (
        1,
        "the SDK raises groups of any depth; a broken connection is a failure of the call",
    ),
    "tools/targets/resolve.py": (
        1,
        "the user's module may raise anything at import; one line and exit code 2",
    ),
    "traces/files/decompress.py": (
        1,
        "three libraries of compression, each with an exception of its own; becomes one line of what is damaged",
    ),
    "traces/files/inspect_zip.py": (
        1,
        "three libraries of compression, each with an exception of its own; becomes BadZipFile",
    ),
    "traces/native/field_values.py": (
        1,
        "asks objects of the user for their text or items, and these may raise anything",
    ),
    "traces/native/episode_writer.py": (
        1,
        "the exception of the block must not be replaced by one of writing its episode",
    ),
}
"""Module -> number of handlers of Exception, and why nothing narrower will do."""
