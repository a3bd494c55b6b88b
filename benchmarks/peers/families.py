"""What does each rule of a peer claim is wrong, in our words? A rule may speak for several families.

The words: kl, entropy, reward, hacking, groups, length, truncation, repetition, clip, gradient, value, plateau, format,
throughput; `healthy` for a scenario in which nothing is wrong. Imported by both Pythons, so it imports nothing.
"""

from __future__ import annotations

__all__ = ["RULES", "SCENARIOS", "families"]

RULES: dict[str, dict[str, tuple[str, ...]]] = {
    "rldoctor": {
        "advantage_collapse": ("groups",),
        "clip_saturation": ("clip",),
        "entropy_collapse": ("entropy",),
        "gradient_pathology": ("gradient",),
        "kl_drift": ("kl",),
        "length_pathology": ("length", "truncation", "hacking"),
        "plateau": ("plateau", "reward"),
        "reward_composition": ("format",),
        "reward_hacking": ("hacking",),
    },
    "rlprobe": {
        "KL_BLOWUP": ("kl",),
        "ENTROPY_COLLAPSE": ("entropy",),
        "REWARD_HACK_LENGTH": ("hacking", "length"),
        "FORMAT_GAMING": ("format",),
        "CLIP_SATURATION": ("clip",),
        "DEGENERATE_GROUPS": ("groups",),
        "ADV_COLLAPSE": ("groups",),
        "VALUE_DIVERGENCE": ("value",),
        "GRAD_PATHOLOGY": ("gradient",),
        "TRUNCATION_STARVE": ("truncation", "length"),
        "REPETITION_SPIRAL": ("repetition",),
        "REWARD_STD_DEATH": ("groups", "reward"),
        "REF_POLICY_DRIFT_ASYMMETRY": ("kl",),
        "THROUGHPUT_ROT": ("throughput",),
    },
    "rlwatch": {
        "entropy_collapse": ("entropy",),
        "kl_explosion": ("kl",),
        "reward_hacking": ("hacking", "reward"),
        "advantage_variance": ("groups",),
        "loss_nan": ("gradient",),
        "gradient_norm_spike": ("gradient",),
        "reward_mean_drift": ("reward", "plateau"),
    },
}

SCENARIOS: dict[str, dict[str, str]] = {
    "rldoctor": {
        "healthy": "healthy",
        "entropy_collapse": "entropy",
        "saturated_groups": "groups",
        "too_hard": "groups",
        "reward_hacking": "hacking",
        "length_hacking": "length",
        "truncation": "truncation",
        "kl_blowup": "kl",
        "clip_saturation": "clip",
        "grad_spikes": "gradient",
        "plateau": "plateau",
        "format_domination": "format",
    },
    "rlprobe": {
        "healthy": "healthy",
        "kl_blowup": "kl",
        "entropy_collapse": "entropy",
        "reward_hack_length": "hacking",
        "format_gaming": "format",
        "clip_saturation": "clip",
        "degenerate_groups": "groups",
        "adv_collapse": "groups",
        "value_divergence": "value",
        "grad_pathology": "gradient",
        "truncation_starve": "truncation",
        "repetition_spiral": "repetition",
        "reward_std_death": "groups",
        "ref_drift_asymmetry": "kl",
        "throughput_rot": "throughput",
    },
}


def families(peer: str, rule: str) -> tuple[str, ...]:
    """The families a peer's rule speaks for; empty for a rule this table does not know."""
    return RULES.get(peer, {}).get(rule, ())
