"""Episodes to training data, in TRL's conversational formats with tool calls.

episodes -> [samples] messages that a chat template takes -> [pairs] attempts at the same task -> [write] Parquet or JSONL and a card
"""

from trimtab.traces.export.export import KINDS, Export, export

__all__ = ["KINDS", "Export", "export"]
