"""Runs of the lab agent that fall after they have learned, with the same runs that do not: the collapse bank."""
