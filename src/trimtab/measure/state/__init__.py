"""The state of one slice of one step, which merges by sums, and the windows that close over it."""
