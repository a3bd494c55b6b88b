"""Launch check: tools, reward, environment, parity and a watched dry run, and one verdict: go or no-go."""

from trimtab.preflight.launch_verdict import run_preflight
from trimtab.preflight.preflight_file import Preflight, load_preflight

__all__ = ["Preflight", "load_preflight", "run_preflight"]
