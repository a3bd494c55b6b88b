"""The post-mortem of a run that ended badly: what happened, what was good last, and what to try first."""

from trimtab.report.post_mortem.post_mortem_file import POST_MORTEM, keep_post_mortem, read_post_mortem
from trimtab.report.post_mortem.post_mortem_record import post_mortem

__all__ = ["POST_MORTEM", "keep_post_mortem", "post_mortem", "read_post_mortem"]
