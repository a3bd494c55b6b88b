"""Validate arrays of a trainer, and give each token its slice."""

from trimtab.capture.batch import token_batch
from trimtab.capture.concat import join_batches
from trimtab.capture.slices import Cells, cells_of, slice_counts

__all__ = ["Cells", "cells_of", "join_batches", "slice_counts", "token_batch"]
