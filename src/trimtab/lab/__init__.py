"""A small world for demos and tests: a SQLite database behind tools, tasks, a 0.45M-parameter agent.

    schedule  Ramp: a quantity that moves with the absolute training step vocab     characters -> ids, as a
    transformers tokenizer world     the database; one tool is one SQL query        output  how a tool words
    its answer toolbox   the one place where tool calls are executed     tasks   prompt -> task -> reward
    episode   one conversation as tokens                      rollout many of them, sampled by the model arms
    named experiments: world + tasks + rollout_func; start there: `open_arm("constrained", steps=40)` model
    the shipped agent                               sft     the recipe that made it probes    fixed
    transcripts                               environment  the same world for `environment_factory`

Importing this package imports nothing; `model`, `rollout`, `sft` and `vocab` need torch or transformers.
"""
