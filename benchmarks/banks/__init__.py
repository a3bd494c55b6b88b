"""Logs with known truth, for judging detectors: `generated` (healthy and pathological) and `recorded` (the pilot's runs)."""
