"""The expected gradient of each KL penalty, by enumeration of a categorical, against that of the KL it names."""

from __future__ import annotations

import pytest
import torch

from trimtab.errors import ObjectiveError
from trimtab.objectives import kl_penalty, kl_terms

P = torch.tensor([0.6, 0.2, 0.15, 0.05], dtype=torch.float64)
REF = torch.tensor([0.1, 0.3, 0.2, 0.4], dtype=torch.float64)
MU = torch.tensor([0.3, 0.3, 0.2, 0.2], dtype=torch.float64)


def expected_gradient(estimator, sampler, *, weighted):
    """sum over tokens of sampler(y) grad loss(y), with respect to the logits of pi_theta."""
    logits = P.log().clone().requires_grad_()
    now = logits.log_softmax(0)[:, None]
    weights = (P / sampler)[:, None] if weighted else None
    loss = kl_penalty(
        now, REF.log()[:, None], torch.ones(4, 1), coefficient=sampler[:, None], denominator=1.0, estimator=estimator,
        weights=weights, sampler_logprobs=sampler.log()[:, None] if estimator == "k3_weighted" else None,
    )  # fmt: skip
    loss.value.backward()
    return logits.grad, loss.value.item()


def exact(direction):
    logits = P.log().clone().requires_grad_()
    p = logits.softmax(0)
    kl = (p * (p / REF).log()).sum() if direction == "reverse" else (REF * (REF / p).log()).sum()
    kl.backward()
    return logits.grad, kl.item()


REVERSE = ["k2", "mse", "k3+", "reverse"]
FORWARD = ["k3", "forward", "low_var_kl"]


@pytest.mark.parametrize("estimator", [*REVERSE, "k3_weighted", *FORWARD, "k1"])
def test_the_gradient_of_tokens_of_the_policy(estimator):
    """Issue 17.19: k3 as a loss has the gradient of the other KL; k2 and k3+ have that of KL(pi_theta || pi_ref)."""
    gradient, value = expected_gradient(estimator, P, weighted=False)
    if estimator == "k1":
        want = torch.zeros(4, dtype=torch.float64)
    else:
        want = exact("forward" if estimator in FORWARD else "reverse")[0]
    torch.testing.assert_close(gradient, want, rtol=1e-10, atol=1e-12)
    if estimator not in ("k2", "mse"):
        assert value == pytest.approx(exact("reverse")[1], rel=1e-10)  # as a number k1 and k3 are right
    apart = (exact("forward")[0] - exact("reverse")[0]).norm() / exact("reverse")[0].norm()
    assert apart > 0.3  # the two are not to be confused


@pytest.mark.parametrize("estimator", [*REVERSE, "k3_weighted"])
def test_the_gradient_of_tokens_of_another_sampler(estimator):
    """Issue 17.19: off policy the weight pi_theta/mu makes it unbiased; without it, it is not."""
    gradient, _ = expected_gradient(estimator, MU, weighted=estimator != "k3_weighted")
    torch.testing.assert_close(gradient, exact("reverse")[0], rtol=1e-10, atol=1e-12)
    if estimator != "k3_weighted":
        plain, _ = expected_gradient(estimator, MU, weighted=False)
        assert (plain - exact("reverse")[0]).norm() > 0.1 * exact("reverse")[0].norm()


def test_the_names_and_what_they_need():
    one = -torch.ones(1, 1)
    assert kl_terms(one, 2 * one, -one, estimator="k3+") == kl_terms(one, 2 * one, -one, estimator="forward")
    with pytest.raises(ObjectiveError, match="k1, k2, k3 or k3\\+, got 'k5'"):
        kl_terms(one, one, -one, estimator="k5")
    with pytest.raises(ObjectiveError, match="needs sampler_logprobs"):
        kl_penalty(one, one, -one, coefficient=1, denominator=1, estimator="k3_weighted")
