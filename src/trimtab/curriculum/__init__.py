"""A sampler over tasks that learns from outcomes: intermediate success first, nothing starved."""

from trimtab.curriculum.curriculum import Curriculum
from trimtab.curriculum.curriculum_options import CurriculumOptions
from trimtab.curriculum.group_waste import WasteCounts, expected_waste

__all__ = ["Curriculum", "CurriculumOptions", "WasteCounts", "expected_waste"]
