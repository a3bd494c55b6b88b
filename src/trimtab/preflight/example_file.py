"""The file of a launch check with every section, commented: what `trimtab preflight --example` prints."""

EXAMPLE = """\
# trimtab preflight preflight.yaml --html preflight.html
# Every section is optional; at least one is needed. Paths are relative to this file's folder, where all runs.

tools:                            # one target, or a list; fields as the flags of `trimtab stress tools`
  - target: my_tools:TOOLS        # module:name, an MCP server's command, or a URL on loopback
    # tools: [search]             # call only these
    # trace: logs/episodes.jsonl  # take calls from a log, else they are drawn from the schemas
    p99_s: 0.5                    # the objective: p99_s, error_rate or both
    error_rate: 0.01
    concurrency: 16               # callers that must hold it: the rollouts that call at a time
    seconds: 2                    # of each level of load
    # chaos: hang=0.01            # faults on purpose

reward:                           # one, or a list; as `trimtab stress reward`
  function: my_reward.py:reward   # module:function or path/file.py:function
  dataset: tasks.jsonl            # a prompt and an answer a row; ten sums without it
  # previous: old_reward.py:reward  # the revision before, on the same probes
  # completions: logged.jsonl       # and on what a run wrote

# environment:                    # as `trimtab stress env` (bubblewrap)
#   spec: env.yaml

parity:                           # as `trimtab parity`
  train: train.yaml
  eval: eval.yaml
  # train_traces: rollouts/       # and scores, task by task
  # eval_traces: eval_logs/

dry_run:
  command: [python, train.py, --steps, "8", --folder, "{run}"]  # {run}: a fresh run folder
  steps: 8                        # that it must flush
  limit_s: 600                    # seconds, then it is ended
  observe: [drift, reward, tools] # what must be observed; without it, some log-ratio of tokens
  # error_rate: 0.2               # of one tool's calls
  steps_planned: 2000             # of the whole run: forecasts its time
  # max_hours: 48
"""
"""The text. Its files and modules are placeholders."""
