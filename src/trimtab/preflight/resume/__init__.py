"""Go or no-go before a resume: is a checkpoint whole, of this run, from before the trouble, and in step?"""

from trimtab.preflight.resume.resume_verdict import ResumeOptions, resume_check

__all__ = ["ResumeOptions", "resume_check"]
