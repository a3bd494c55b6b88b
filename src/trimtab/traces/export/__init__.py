"""Episodes to training data, in TRL's conversational formats with tool calls.

episodes -> [samples] messages that a chat template takes -> [pairs] attempts at the same task ->
[dataset_files] Parquet or JSONL -> [data_card] what was written and what was left out
"""

from trimtab.traces.export.export_options import KINDS, ExportOptions
from trimtab.traces.export.training_set import Export, export

__all__ = ["KINDS", "Export", "ExportOptions", "export"]
