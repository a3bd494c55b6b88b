"""Behaviour snapshots as views show them: evidence on checkpoints, lines of a terminal, the data of the page.

checkpoint_evidence  reward, alarms, ESS and drift of each checkpoint of a run
snapshot_summary     everything `trimtab snapshots` says, as JSON types
snapshot_lines       the same in a terminal
"""
