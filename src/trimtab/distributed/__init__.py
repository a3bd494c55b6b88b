"""Merge what the ranks of a job measured, late and without ever blocking a step.

    rank -> Shard -> [source: folder | store | gloo] -> Merger -> MergedStep -> detectors
    leading rank -> Decision -> [channel: folder | store] -> every rank, at a stated later step

shard          one closed step of one rank, and its bytes
sources        what a source of shards is; the options
folder_source  shards of the shared run folder, tailed
store_source   shards through torch.distributed's TCPStore
gloo_source    shards through a gloo group of our own, and through the folder where it fails
gloo_group     that group: one thread, a deadline
merger         folds each step once: late, with sequence numbers, in constant memory
merged_step    the rows of a step's ranks as those of one
silent_ranks   ranks that have written nothing for too long
ended_ranks    ranks that finished, and are not silent
heartbeats     processes that are stopped, also while a collective holds all ranks up
decisions      what the leading rank decided, written once and read by all

No call waits for a rank. Only `gloo_group` imports torch, when it is used.
"""

from trimtab.distributed.decisions import Decision, FolderDecisions
from trimtab.distributed.folder_source import FolderSource
from trimtab.distributed.merger import Merger
from trimtab.distributed.shard import Shard
from trimtab.distributed.sources import MergeOptions, Source

__all__ = ["Decision", "FolderDecisions", "FolderSource", "MergeOptions", "Merger", "Shard", "Source"]
