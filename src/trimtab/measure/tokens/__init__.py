"""Measures of single tokens: tails of log-ratios, KL, ESS, entropy, reference support, clipping."""
