"""Read trajectories of SWE-agent and mini-swe-agent."""
