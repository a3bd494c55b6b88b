"""Capture: what did each token look like to the sampler, the trainer and the reference, before or after a tool spoke?"""

from trimtab.capture.batch import token_batch
from trimtab.capture.slices import Cells, cells_of

__all__ = ["Cells", "cells_of", "token_batch"]
