"""Behaviour snapshots: fixed prompts and transcripts at a cadence, compared, and which checkpoint to keep.

snapshot_records     `Snapshot`, `Answer`, `TranscriptScores`, as rows of the run folder and back
snapshot_taking      ask a loop for answers and scores
snapshot_reader      `read_snapshots` of a run folder
answer_traits        refusal, length, tool calls, format and repetition of an answer
snapshot_comparison  `compare_snapshots`: paired differences with intervals
checkpoint_advice    `advise_checkpoint`: which one to keep
"""

from trimtab.snapshots.snapshot_comparison import compare_snapshots
from trimtab.snapshots.snapshot_reader import read_snapshots
from trimtab.snapshots.snapshot_records import Answer, Snapshot, SnapshotPrompt, TranscriptScores
from trimtab.snapshots.snapshot_taking import taken_row

__all__ = [
    "Answer",
    "Snapshot",
    "SnapshotPrompt",
    "TranscriptScores",
    "compare_snapshots",
    "read_snapshots",
    "taken_row",
]
