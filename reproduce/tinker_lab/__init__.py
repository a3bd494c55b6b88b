"""The lab agent, trained through SkyRL's Tinker API on a CPU and watched: `python -m reproduce.tinker_lab`."""
