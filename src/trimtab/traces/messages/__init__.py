"""Turn chat messages of any provider into turns, calls and results."""
