"""Series of single steps: values by slice with standard errors from the trajectories of one step."""
