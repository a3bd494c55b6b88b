"""Read metrics logs of other trainers: one number a step under their names, mapped to ours.

path -> [find] format -> [text_files, tables_on_disk, binary_files, stores] RawLog -> [keys, nulls] MetricLog
"""

from trimtab.metric_logs.detect_format import FORMATS
from trimtab.metric_logs.frameworks.base import Framework
from trimtab.metric_logs.frameworks.match import FRAMEWORKS, aliases
from trimtab.metric_logs.log import REPLACED, MetricLog
from trimtab.metric_logs.read_log import read_metric_log

__all__ = ["FORMATS", "FRAMEWORKS", "REPLACED", "Framework", "MetricLog", "aliases", "read_metric_log"]
