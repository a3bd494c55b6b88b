"""Measures of the policy beyond one step: probes, cross scores, gradients, re-tokenization."""
