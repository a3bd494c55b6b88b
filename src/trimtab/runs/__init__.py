"""The run folder: what a watched run leaves on disk, and how it is read back."""

from trimtab.runs.reader import RunReader
from trimtab.runs.run_files import compress_run, read_header
from trimtab.runs.run_writer import RunWriter
from trimtab.runs.schema import FORMAT, KINDS, state_block

__all__ = ["FORMAT", "KINDS", "RunReader", "RunWriter", "compress_run", "read_header", "state_block"]
