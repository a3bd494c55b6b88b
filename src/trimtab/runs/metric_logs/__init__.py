"""Logs of other trainers: one number a step under their names, read into ours.

path -> [find] format -> [text_files, tables_on_disk, binary_files, stores] RawLog -> [keys, nulls] MetricLog
"""

from trimtab.runs.metric_logs.find import FORMATS
from trimtab.runs.metric_logs.framework import Framework
from trimtab.runs.metric_logs.keys import FRAMEWORKS, aliases
from trimtab.runs.metric_logs.log import REPLACED, MetricLog
from trimtab.runs.metric_logs.read import read_metric_log

__all__ = ["FORMATS", "FRAMEWORKS", "REPLACED", "Framework", "MetricLog", "aliases", "read_metric_log"]
