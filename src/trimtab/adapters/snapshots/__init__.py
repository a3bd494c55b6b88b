"""Behaviour snapshots of a transformers model: in any torch loop, and inside a Hugging Face trainer.

model_snapshots     greedy answers to fixed prompts, scores of fixed transcripts, and nothing of the loop
disturbed fixed_transcripts   prompts and transcripts as token ids, written once into the run folder
snapshot_callback   a TrainerCallback that takes them
"""

from trimtab.adapters.snapshots.fixed_transcripts import FixedTranscript, SnapshotOptions
from trimtab.adapters.snapshots.model_snapshots import model_answers, score_transcripts, undisturbed

__all__ = ["FixedTranscript", "SnapshotOptions", "model_answers", "score_transcripts", "undisturbed"]
