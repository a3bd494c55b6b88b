"""Every error trimtab raises on purpose.

    TrimtabError              base; the command line prints it as one line and exits with code 2
    ├── BatchError            a TokenBatch that cannot be right: names the field, the shapes and what to do
    ├── CurriculumError       tasks, options or a saved state of a curriculum that cannot be right
    ├── GuardError            a guard's options that cannot be right: an unknown policy, a cap out of range, a full disk
    ├── RunError              a run folder that is not one, cannot be read, or comes from a newer trimtab
    ├── MetricLogError    a metrics log of some trainer that cannot be found, recognised or read
    ├── ObjectiveError        inputs of a loss or of its machinery that cannot be right: shapes, masks, bounds, groups
    │   └── RoutesError       recorded routes that are missing, short, out of range, or do not fit the model
    ├── ParityError           settings or agent logs of training or evaluation that cannot be read
    ├── PreflightError        a launch check's file that cannot be right: names the file, the line and the field
    ├── RewardError           a reward function or its tasks that cannot be loaded, called or read
    ├── RuleError             a user's rule that cannot be right: names the file, the line and the field
    ├── SinkError             a tracker or an alert that cannot be right: an unknown name, a missing extra, a bad address
    ├── SummaryError          two summaries with different parameters, or bytes that are not a summary
    ├── ToolError             tools to execute or to stress that cannot be right: a dead target, a bad schema, a missing extra
    ├── TraceError            agent logs that cannot be found, recognised, read, or exported as asked
    └── UnsupportedError      a trainer feature trimtab cannot watch; names the feature

A message says what is wrong, where, and what to do, in one line.
"""  # noqa: E501

from __future__ import annotations


class TrimtabError(Exception):
    """Base of all errors raised on purpose; catch this to catch them all."""


class BatchError(TrimtabError, ValueError):
    """A batch of tokens is malformed: mismatched shapes, a mask that is not boolean, a log-probability above
    zero."""


class CurriculumError(TrimtabError, ValueError):
    """Tasks, options, outcomes or the saved state of a curriculum are malformed, or belong to another one."""


class GuardError(TrimtabError):
    """Options of a guard are malformed: an unknown policy or field, a value out of range, a ring larger than
    the disk, no controls."""


class RunError(TrimtabError):
    """A run folder is missing, not a run, unreadable, or written by a newer version of trimtab."""


class MetricLogError(TrimtabError):
    """A metrics log is missing, of no format or framework we know, or unreadable; says what to give
    instead."""


class ObjectiveError(TrimtabError, ValueError):
    """Inputs of a loss are malformed: unequal shapes, a mask that is not boolean, bounds out of order, a
    group of one."""


class RoutesError(ObjectiveError):
    """Recorded expert routes are missing, short, out of range, or belong to another model or batch."""


class ParityError(TrimtabError):
    """Settings or agent logs of a side that is to be compared cannot be read."""


class PreflightError(TrimtabError):
    """The file of a launch check is malformed, or states nothing to check."""


class RewardError(TrimtabError):
    """A reward function cannot be loaded or called, or its tasks, logs or traces cannot be read."""


class RuleError(TrimtabError):
    """A user's rule is malformed: an unknown metric, detector or field, a value out of range, a name already
    taken."""


class SinkError(TrimtabError):
    """A tracker or an alert cannot be used as asked: an unknown name, a missing library, a bad address."""


class SummaryError(TrimtabError, ValueError):
    """Two mergeable summaries do not fit together, or bytes do not hold the summary they should."""


class ToolError(TrimtabError):
    """Tools cannot be opened or executed as asked: a dead target, a malformed schema, a missing extra, a
    batch below its floor."""


class TraceError(TrimtabError):
    """Agent logs are missing, of no format we know, malformed under `strict`, or cannot give the export asked
    for."""


class UnsupportedError(TrimtabError):
    """A trainer or a feature of it that trimtab cannot watch, refused by name instead of watched badly."""
