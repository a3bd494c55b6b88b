"""Settings and trainers that MiniRLTrainer cannot honour: one line each, with what to set instead."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from trimtab.errors import UnsupportedError
from trimtab.training.minirl.objective_defaults import DEFAULTS, WINDOW_DENOMINATORS

_DUAL = ("ppo", "grpo", "dr_grpo", "dapo")
_OWN_WEIGHT = ("decoupled", "decoupled_kl")
_TRL_NAMES = ("cispo", "dapo", "dr_grpo", "grpo")


def config_refusals(args: Any) -> Iterator[str]:
    """Yield one line for each TRL feature, and each pair of settings, that the trainer cannot honour."""
    objective = args.objective
    if args.loss_type is not None:
        own = args.loss_type if args.loss_type in _TRL_NAMES else ""
        yield f"loss_type={args.loss_type!r} is TRL's loss; " + (
            f"set objective={own!r}" if own else f"the objectives are {', '.join(DEFAULTS)}"
        )
    if args.importance_sampling_level != "token":
        yield "importance_sampling_level: set objective='gspo' for ratios of whole sequences"
    if args.top_entropy_quantile < 1.0:
        yield "top_entropy_quantile selects within a micro-batch; set entropy_keep, over the whole generation"
    if getattr(args, "entropy_coef", 0.0) or getattr(args, "use_adaptive_entropy", False):
        yield "entropy_coef and use_adaptive_entropy: set bonus_target"
    if args.use_bias_correction_kl and args.kl_estimator not in (None, "k3_weighted"):
        yield (
            f"use_bias_correction_kl with kl_estimator={args.kl_estimator!r}: it is "
            "kl_estimator='k3_weighted'; set one of them"
        )
    if args.vllm_importance_sampling_correction:
        yield (
            "vllm_importance_sampling_correction: set correction (tis, mis, icepop), or take minirl, which "
            "has the weight"
        )
    for name, part in type(args).__dataclass_fields__.items():
        tuned = name.startswith("vllm_importance_sampling_") and name != "vllm_importance_sampling_correction"
        if tuned and getattr(args, name) != part.default:
            yield (
                f"{name}={getattr(args, name)!r} tunes TRL's own correction, which is not used; set "
                "correction and its bounds"
            )
    if args.use_liger_kernel:
        yield "use_liger_kernel: a fused loss gives no per-token log-probabilities; switch it off"
    if args.delta is not None and objective not in _DUAL:
        yield f"delta (dual clip) belongs to {', '.join(_DUAL)}, not to {objective}"
    if objective != "minirl" and not (args.importance and args.clip):
        yield "importance=False and clip=False are ablations of objective='minirl'"
    if args.length_norm and objective not in ("minirl", "reinforce"):
        yield f"length_norm is an ablation of minirl and reinforce, not of {objective}"
    weighs = args.correction != "none" and not (args.correction == "mis" and not args.correction_weighs)
    if weighs and (objective in _OWN_WEIGHT or (objective == "minirl" and args.importance)):
        yield (
            f"correction={args.correction!r} with {objective}, whose own weight is over mu: the mismatch "
            "would be corrected twice"
        )
    if args.self_normalise and not weighs:
        yield "self_normalise needs a correction that weighs (tis, mis, icepop)"
    if args.self_normalise and args.off_policy_mask_threshold is not None:
        yield (
            "self_normalise with off_policy_mask_threshold: rows it drops depend on pi_theta, unknown before "
            "the step"
        )
    if objective == "decoupled_kl" and args.prox_beta is None:
        yield "decoupled_kl needs prox_beta: its paper gives no default for language models"


def refuse_settled(args: Any) -> None:
    """Raise UnsupportedError for what shows once TRL and the paper have filled in their defaults."""
    for text in _settled_refusals(args):
        raise UnsupportedError(f"MiniRLTrainer: {text}")


def _settled_refusals(args: Any) -> Iterator[str]:
    # sums over an optimizer step are needed before all of its micro-batches exist
    micro, lasting = args.gradient_accumulation_steps, args.steps_per_generation * args.num_iterations
    if (args.objective in WINDOW_DENOMINATORS or args.self_normalise) and lasting % micro:
        yield (
            f"objective={args.objective!r} needs sums over the tokens of an optimizer step, but its "
            f"gradient_accumulation_steps={micro} do not fit one generation, used for {lasting} "
            "micro-batches: make steps_per_generation x num_iterations a multiple of it"
        )
    if DEFAULTS[args.objective].divide == "constant" and not args.max_completion_length:
        yield f"objective={args.objective!r} divides by max_completion_length: set it"
    own = getattr(args, "multi_objective_aggregation", "sum_then_normalize")
    if own == "normalize_then_sum" and args.scale_rewards == "none":
        yield (
            f"multi_objective_aggregation={own!r} divides by the std of each reward, but "
            f"objective={args.objective!r} centres "
            "only: sum_then_normalize, or say scale_rewards='group' that you want the std"
        )
    if (args.generation_kwargs or {}).get("num_return_sequences", 1) != 1:
        yield "generation_kwargs num_return_sequences: set num_generations, TRL repeats the prompts itself"


def refuse_trainer(trainer: Any, needs_mu: bool) -> None:
    """Raise UnsupportedError for what only the built trainer shows: its engine, parallelism and model."""
    for text in _trainer_refusals(trainer, needs_mu):
        raise UnsupportedError(f"MiniRLTrainer: {text}")


def _trainer_refusals(trainer: Any, needs_mu: bool) -> Iterator[str]:
    args = trainer.args
    kind = str(trainer.accelerator.distributed_type).rsplit(".", 1)[-1]
    heavy = [
        name
        for name, on in (
            ("ewma_centre_of_mass", args.ewma_centre_of_mass is not None),
            (f"routing_replay={args.routing_replay!r}", args.routing_replay != "off"),
            ("off_policy_baseline", args.off_policy_baseline),
        )
        if on
    ]
    if kind == "FSDP" and getattr(trainer.accelerator, "is_fsdp2", False):
        if args.off_policy_baseline:
            yield "off_policy_baseline needs a gradient of each row, which FSDP2 does not give; use DDP"
    elif heavy and kind in ("FSDP", "DEEPSPEED", "MEGATRON_LM"):
        kind = "FSDP1" if kind == "FSDP" else kind
        yield f"{heavy[0]} needs whole parameters; {kind} shards them, use FSDP2 (fsdp_version: 2) or DDP"
    if heavy and args.torch_compile:
        yield f"{heavy[0]} with torch_compile is not tested: switch one off"
    if trainer.rollout_func is None and not trainer.use_vllm:
        yield from _own_generation(trainer, needs_mu)
    if args.routing_replay == "R3" and trainer.use_vllm and trainer.rollout_func is None:
        yield (
            "routing_replay='R3' with vLLM: TRL's client returns no routed experts; return `routes` from a "
            "rollout_func"
        )
    for name, on in (
        ("routing_replay", args.routing_replay != "off"),
        ("off_policy_baseline", args.off_policy_baseline),
    ):
        if on and trainer._is_vlm:
            yield f"{name} of vision-language models"
        kwargs = args.gradient_checkpointing_kwargs or {}
        if on and args.gradient_checkpointing and kwargs.get("use_reentrant"):
            yield (
                f"{name} with use_reentrant=True: set "
                f"gradient_checkpointing_kwargs={{'use_reentrant': False}}"
            )
    if args.bonus_target is not None and not hasattr(args, "entropy_coef"):
        yield (
            "bonus_target: this TRL computes entropies without gradient; it needs a release with "
            "entropy_coef (1.16 has it)"
        )


def _own_generation(trainer: Any, needs_mu: bool) -> Iterator[str]:
    """Yield what is wrong with sampling by transformers: only a plain loop shows log-probabilities and
    routes.
    """
    args = trainer.args
    needs = needs_mu or args.routing_replay == "R3"
    paged = getattr(args, "use_transformers_continuous_batching", False) or getattr(
        args, "use_transformers_paged", False
    )
    if needs and paged:
        yield (
            "continuous batching of transformers returns no log-probabilities: use plain generate, vLLM or a "
            "rollout_func"
        )
    config = getattr(trainer, "generation_config", None)
    if needs and config is not None and not paged:
        if not config.do_sample:
            yield "generation_kwargs do_sample=False: greedy tokens have no sampling distribution mu"
        if (config.num_beams or 1) > 1:
            yield "generation_kwargs num_beams > 1: beams are not samples of one distribution mu"
        if getattr(config, "prompt_lookup_num_tokens", None) or getattr(config, "assistant_early_exit", None):
            yield "assisted generation: the recorder sees one token a forward"
