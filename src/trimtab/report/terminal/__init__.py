"""The live view of runs and the progress bar in the terminal."""
