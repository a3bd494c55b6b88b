"""llama.cpp as a second inference engine: GGUF export, and a rollout function that samples from it."""

from trimtab.training.llamacpp.gguf_export import FORMATS, export_gguf
from trimtab.training.llamacpp.rollout_engine import LlamaCppEngine

__all__ = ["FORMATS", "LlamaCppEngine", "export_gguf"]
