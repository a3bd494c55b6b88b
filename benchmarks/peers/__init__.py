"""The peers' half of the detector bench: rldoctor 0.2.0, rlprobe 0.1.0, rlwatch 0.5.1, each in its own words."""
