"""One arm of a mock agent RL run, as the report's payload has it."""

from __future__ import annotations

from typing import Any

import numpy as np


def run(name: str, steps: int, grows: bool, seed: int = 0) -> dict[str, Any]:
    """One arm: `grows` decides whether the post_tool tail takes off at 40 % of the run."""
    rng = np.random.default_rng(seed)
    step = np.arange(4, steps, 2)
    late = np.maximum(0.0, (step - 0.4 * steps) / (0.6 * steps))

    def series(base: float, slope: float, noise: float) -> np.ndarray:
        return base + slope * step / steps + rng.normal(0, noise, step.size)

    def tail(slice_: str, quantity: str, value: np.ndarray, num_tokens: int) -> dict[str, Any]:
        width = 0.06 + 0.09 * value
        n = rng.poisson(num_tokens, step.size)
        return {
            "slice": slice_, "quantity": quantity, "step": step.tolist(), "value": value.tolist(), "n_tokens": n.tolist(),
            "low": (value - width).tolist(), "high": (value + width * 1.3).tolist(), "n_trajectories": (n // 96).tolist(),
        }  # fmt: skip

    def plain(value: np.ndarray, **names: object) -> dict[str, Any]:
        return {**names, "step": step.tolist(), "value": value.tolist()}

    takeoff = (7.5 * late**1.6 if grows else 0.35 * late) * (1 + 0.06 * rng.normal(size=step.size))
    text99, post99 = series(0.55, 0.35, 0.02), series(0.62, 0.3, 0.03) + takeoff
    fired = {
        "rule": "tail_ratio/post_tool",
        "severity": "critical",
        "slice": "post_tool",
        "hidden": True,
        "averages": "no aggregate rule had fired; 4 of 15 could speak by then",
        "cleared": None,
    }
    alarm = {
        **fired, "step": int(0.55 * steps), "since": int(0.44 * steps),
        "what": "The post_tool tail left the text tail: p99 ratio 3.1, baseline 1.1",
        "why": "Tokens written after a tool result get probabilities the reference almost never gives them. This grows "
        "for hundreds of steps before reward or mean KL move, and then the run collapses within a few.",
        "advice": "Constrain the policy on post_tool tokens (KL there, not everywhere), or lower the learning rate by half. "
        "Look at tool 'search' first: 71 % of the excess comes from it.",
        "reference": "trimtab docs/reference/metrics.md, drift/tail_ratio; bound 2.0 (default, not calibrated, 1 false alarm in 10,000 steps)",
    }  # fmt: skip
    clip = {
        **fired, "rule": "clip_frac/slope", "severity": "warning", "hidden": False, "step": int(0.82 * steps),
        "since": int(0.78 * steps), "cleared": int(0.93 * steps), "what": "Clipped share of tokens doubled in 8 steps",
        "why": "Clipped tokens carry no gradient.", "advice": "Nothing yet; follows the alarm above.", "reference": "catalog clip/frac",
    }  # fmt: skip
    cdf = []
    for slice_, end in (("text", 0.9), ("post_tool", post99[-1])):
        for k, window in enumerate(("early", "middle", "late")):
            scale = 0.12 * (1 + 0.15 * k)
            stretch = (1.0, 1.0 + 0.25 * (end > 2), max(1.0, end / 1.2))[k]
            x = np.logspace(-3, np.log10(scale * 9 * stretch), 90)
            survive = 0.985 * np.exp(-x / scale) + 0.015 * np.exp(-((x / (scale * 2.2 * stretch)) ** 0.9))
            first = 4 + k * steps // 3
            cdf.append({"slice": slice_, "window": window, "first": first, "last": first + steps // 3 - 5,
                        "n_tokens": 812_345, "x": x.tolist(), "y": (1 - survive).tolist()})  # fmt: skip
    ess = np.clip(series(0.93, -0.05, 0.008) - (0.5 * late if grows else 0), 0.02, 1)
    weights = [
        plain(series(1.2, 0.3, 0.02), slice="text", quantity="concentration (drift)", supporting=True),
        plain(
            series(1.3, 0.3, 0.03) + takeoff * 0.8,
            slice="post_tool",
            quantity="concentration (drift)",
            supporting=True,
        ),
        plain(series(0.97, -0.02, 0.004), slice="text", quantity="ESS fraction (mismatch)", supporting=True),
        plain(ess, slice="post_tool", quantity="ESS fraction (mismatch)", supporting=True),
    ]
    support = [
        plain(
            np.clip(series(0.004, 0.001, 3e-4), 0, 1), slice="text", quantity="share of tokens below -5 nats"
        ),
        plain(
            np.clip(series(0.005, 0.002, 4e-4) + 0.004 * takeoff, 0, 1),
            slice="post_tool",
            quantity="share of tokens below -5 nats",
        ),
        plain(series(-4.1, -0.3, 0.06), slice="text", quantity="log pi_ref p01"),
        plain(series(-4.4, -0.4, 0.08) - takeoff, slice="post_tool", quantity="log pi_ref p01"),
    ]
    by_tool = [tail(f"post_tool/{tool}", "drift p99", post99 * factor + rng.normal(0, 0.03, step.size), 2600)
               for tool, factor in (("search", 1.25), ("read_file", 0.9), ("sql", 0.62 if grows else 0.9))]  # fmt: skip
    means = {"reward": (0.42, 0.21, 0.02), "mean KL": (0.011, 0.006, 0.001), "entropy": (1.31, -0.07, 0.02),
             "grad norm": (0.38, 0.02, 0.06), "loss": (0.004, -0.001, 0.006), "completion length": (912, 140, 25)}  # fmt: skip
    return {
        "name": name, "path": f"runs/{name}", "verdict": "alarms" if grows else "healthy", "first_step": 0, "last_step": steps - 1,
        "headline": "ALARMS since step 88: the tail grew (tail_ratio/p95, slice post_tool). Last good step: 87." if grows else "HEALTHY: calm.",
        "verdict_reason": "Reward, entropy and mean KL stayed inside their bounds throughout." if grows else
        "Text and post_tool tails grew together, as in every run that learns.",
        "num_steps": steps, "num_tokens": 8_412_903, "num_trajectories": 12_288, "ranks": 8, "sessions": 2,
        "facts": [["Reference", "the trainer's own, 1,024 sequences a step"], ["Cost of the watch", "1.9 % of step time"],
                  ["Torn lines", "1 (session 1 was killed while writing)"]],
        "not_observed": [{"what": "mismatch (pi_old / mu)", "why": "the engine returned no log-probabilities"}],
        "notes": [], "alarms": [alarm, clip] if grows else [],
        "alarmed": [plain(series(0.1, 0.3, 0.02), slice="tool/sql", quantity="tools/failure_frac in tool/sql")] if grows else [],
        "tail": [tail("text", "drift p99", text99, 21_000), tail("post_tool", "drift p99", post99, 9_400),
                 tail("text", "drift p95", text99 * 0.45, 21_000), tail("post_tool", "drift p95", 0.45 * post99**0.7, 9_400), *by_tool],
        "cdf": cdf, "weights": weights, "support": support,
        "aggregates": [plain(series(*parameters), name=key) for key, parameters in means.items()],
        "tools": [{"tool": "search", "calls": 18_211, "error_frac": 0.012, "latency_p50_s": 0.31, "latency_p99_s": 4.2, "result_size_p50": 2210.0},
                  {"tool": "read_file", "calls": 9_120, "error_frac": 0.0, "latency_p50_s": 0.004, "latency_p99_s": 0.02, "result_size_p50": 900.0}],
        "judged": [{"slice": "text", "status": "ok", "n_tokens": 5_800_112, "n_trajectories": 12_288},
                   {"slice": "post_tool", "status": "ok", "n_tokens": 2_612_791, "n_trajectories": 11_902},
                   {"slice": "post_tool/sql", "status": "not judged yet", "n_tokens": 812, "n_trajectories": 9}],
    }  # fmt: skip
