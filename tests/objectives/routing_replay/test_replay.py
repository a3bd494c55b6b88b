"""Replay on every family: bit-identical with equal weights, fixed routing and live gates with a perturbed router."""

from __future__ import annotations

import copy

import pytest
import torch

from tests.objectives.routing_replay.models import FAMILIES, batch, perturb, tiny
from trimtab.errors import RoutesError, UnsupportedError
from trimtab.objectives.routing_replay import MISSING, RoutingReplay, pack_routes

ALL = pytest.mark.parametrize("family", list(FAMILIES))


def record(model, replay, ids, **inputs):
    with torch.no_grad(), replay.recording() as tape:
        logits = model(input_ids=ids, **inputs).logits
    return logits, tape.routes(len(ids))


def used(model, replay, run):
    """Experts that the expert modules really received, by layer, while `run` ran."""
    seen, hooks = [[] for _ in replay.routers], []
    names = dict(model.named_modules())
    for layer, name in enumerate(replay.layers):
        experts = names[name.rsplit(".", 1)[0] + ".experts"]
        hooks.append(
            experts.register_forward_pre_hook(lambda m, args, layer=layer: seen[layer].append(args[1]))
        )
    try:
        run()
    finally:
        for hook in hooks:
            hook.remove()
    return [torch.cat(chunks) for chunks in seen]


@ALL
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_equal_weights_give_bit_identical_logits(family, dtype):
    model, ids = tiny(family).to(dtype), batch()
    plain = model(input_ids=ids).logits
    replay = RoutingReplay(model)
    logits, routes = record(model, replay, ids)
    assert torch.equal(logits, plain)
    layers = 2 if family in ("qwen3", "deepseek") else 3  # one dense layer in those
    assert routes.shape == (3, 9, layers, replay.top_k)
    assert routes.dtype == torch.int8
    with replay.replaying(routes, compare=True) as replayed:
        assert torch.equal(model(input_ids=ids).logits, plain)
    assert replayed.changed.tolist() == [0] * layers
    assert replayed.tokens.tolist() == [27] * layers
    assert len(routes.reshape(-1, replay.top_k).unique(dim=0)) > 3  # routing is not trivial
    assert torch.equal(model(input_ids=ids).logits, plain)  # outside nothing is replayed


@ALL
def test_equal_weights_give_bit_identical_logits_under_autocast_and_from_inference_mode(family):
    model, ids = tiny(family), batch()
    replay = RoutingReplay(model)
    with torch.inference_mode(), torch.autocast("cpu", dtype=torch.bfloat16), replay.recording() as tape:
        logits = model(input_ids=ids).logits
    with torch.autocast("cpu", dtype=torch.bfloat16), replay.replaying(tape.routes(3)):
        again = model(input_ids=ids).logits
        again.float().logsumexp(-1).sum().backward()
    assert torch.equal(again, logits)
    assert all(router.module.weight.grad.norm() > 0 for router in replay.routers)


@ALL
def test_a_perturbed_router_keeps_the_routing_and_every_router_learns(family):
    model, ids = tiny(family), batch()
    replay = RoutingReplay(model)
    _, routes = record(model, replay, ids)
    perturb(model, replay)
    natural, again = record(model, replay, ids)
    assert (natural.float() != 0).any()
    changed = (again.sort(-1).values != routes.sort(-1).values).any(-1).sum(dim=(0, 1))
    assert (changed > 0).all()

    model.requires_grad_(True)
    with replay.replaying(routes, compare=True) as replayed:
        outputs = []
        got = used(model, replay, lambda: outputs.append(model(input_ids=ids).logits))
        outputs[0].float().logsumexp(-1).sum().backward()
    for layer, experts in enumerate(got):
        assert torch.equal(experts.view(3, 9, -1).to(routes.dtype), routes[:, :, layer])
    assert (
        replayed.changed[0] == changed[0]
    )  # later layers see other inputs, as their earlier ones were replayed
    for router in replay.routers:
        gradient = router.module.weight.grad
        assert gradient.isfinite().all()
        assert gradient.norm() > 1e-6
    assert not torch.equal(outputs[0], natural)


@ALL
def test_gates_and_their_gradient_are_those_of_the_live_logits(family):
    """Against the family's formula written out for one router: softmax over all or the chosen, sigmoid, normalised or not."""
    model = tiny(family)
    replay = RoutingReplay(model)
    router = replay.routers[-1]
    module = router.module
    hidden = torch.randn(4, 32, generator=torch.Generator().manual_seed(1), requires_grad=True)
    chosen = torch.tensor([[5, 0, 3], [1, 2, 4], [0, 5, 1], [3, 1, 0]])[:, : replay.top_k]
    routes = torch.zeros(1, 4, len(replay.layers), replay.top_k, dtype=torch.long)
    routes[0, :] = chosen[:, None]

    def route():
        if router.block is None:
            return module(hidden)
        logits = module(hidden)
        return logits, *reversed(router.block.route_tokens_to_experts(logits))

    got = []
    with pytest.raises(RoutesError, match="consumed 0 of 4"), replay.replaying(routes):
        got.extend(route())  # one router of several ran
    logits, gates, experts = got
    assert torch.equal(experts, chosen)
    bias = getattr(module, "bias", None)
    z = hidden.detach() @ module.weight.detach().T + (0 if bias is None else bias.detach())
    for i, row in enumerate(chosen.tolist()):
        if family == "gpt_oss":
            want = torch.softmax(z[i, row], 0)
        elif family == "deepseek":
            want = torch.sigmoid(z[i, row])
            want = 2.5 * want / want.sum()
        else:
            want = torch.softmax(z[i], 0)[row]
            want = want if family == "olmoe" else want / want.sum()
        torch.testing.assert_close(gates[i].detach(), want, rtol=1e-5, atol=1e-6)
    (gates[:, 0].sum() + 0 * logits.sum()).backward()
    assert hidden.grad.abs().sum() > 0


def test_padding_rows_are_routed_live_and_attended_ones_replayed():
    model, ids = tiny("qwen3"), batch()
    mask = torch.ones_like(ids)
    mask[0, :4] = mask[2, :2] = 0  # left padding
    replay = RoutingReplay(model)
    logits, routes = record(model, replay, ids, attention_mask=mask)
    routes[mask == 0] = MISSING
    with (
        pytest.raises(RoutesError, match="no recorded route; first at row 0, token 0, layer 0"),
        replay.replaying(routes),
    ):
        pass
    with replay.replaying(routes, required=mask.bool()) as replayed:
        again = model(input_ids=ids, attention_mask=mask).logits
    assert torch.equal(again, logits)
    assert replayed.counts["missing"].tolist() == [0, 0]
    perturb(model, replay)
    with replay.replaying(routes, required=mask.bool()):
        got = used(model, replay, lambda: model(input_ids=ids, attention_mask=mask))
    inside = mask.bool()
    for layer, experts in enumerate(got):
        assert torch.equal(experts.view(3, 9, -1)[inside].to(routes.dtype), routes[:, :, layer][inside])
        assert (experts >= 0).all()


def test_packed_rows_replay_what_the_rows_recorded():
    model, ids = tiny("mixtral"), batch()
    replay = RoutingReplay(model)
    logits, routes = record(model, replay, ids)
    mask = torch.ones_like(ids)
    mask[1, 6:] = 0
    packed = pack_routes(routes, mask)
    kept = mask.bool()
    positions = torch.arange(9).expand(3, 9)[kept][None]
    perturb(model, replay)
    with replay.replaying(packed):
        got = used(
            model, replay, lambda: model(input_ids=ids[kept][None], position_ids=positions, use_cache=False)
        )
    for layer, experts in enumerate(got):
        assert torch.equal(experts.to(routes.dtype), routes[:, :, layer][kept])
    assert logits.shape[0] == 3


def test_chunks_of_rows_and_several_passes():
    model, ids = tiny("olmoe"), batch(rows=4)
    replay = RoutingReplay(model)
    _, routes = record(model, replay, ids)
    perturb(model, replay)
    with replay.replaying(routes):
        whole = model(input_ids=ids).logits
    with torch.no_grad(), replay.replaying(routes) as replayed:
        for _ in range(2):
            parts = [model(input_ids=ids[i : i + 2]).logits for i in (0, 2)]
            torch.testing.assert_close(torch.cat(parts), whole, rtol=1e-4, atol=1e-5)
    assert replayed.tokens.tolist() == [72] * 3
    with pytest.raises(RoutesError, match="does not fit"), replay.replaying(routes):
        model(input_ids=ids[:, :5])
    with pytest.raises(RoutesError, match="does not fit"), replay.replaying(routes):
        model(input_ids=torch.cat([ids, ids]))
    with pytest.raises(RoutesError, match="consumed 18 of 36"), replay.replaying(routes):
        model(input_ids=ids[:2])
    with pytest.raises(RoutesError, match="did not run"), replay.replaying(routes):
        pass
    with replay.replaying(routes):  # and it is usable again after each
        assert torch.equal(model(input_ids=ids).logits, whole)


def test_cached_decoding_records_what_a_full_forward_records():
    model, ids = tiny("qwen3"), batch()
    replay = RoutingReplay(model)
    with torch.no_grad(), replay.recording() as tape:
        out = model.generate(ids, max_new_tokens=5, do_sample=False, eos_token_id=None, pad_token_id=0)
    routes = tape.routes(3)
    assert routes.shape[:2] == (3, 9 + 5 - 1)  # the last token was never fed
    _, full = record(model, replay, out)
    assert torch.equal(routes, full[:, :-1])


@ALL
def test_gradient_checkpointing_replays_in_the_recompute(family):
    model, ids = tiny(family), batch()
    replay = RoutingReplay(model)
    _, routes = record(model, replay, ids)
    perturb(model, replay)
    model.train()

    def gradients():
        model.zero_grad()
        with replay.replaying(routes):
            model(input_ids=ids, use_cache=False).logits.float().logsumexp(-1).sum().backward()
        return {n: p.grad.clone() for n, p in model.named_parameters() if p.grad is not None}

    plain = gradients()
    model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    calls = []
    hook = replay.routers[0].module.register_forward_hook(lambda m, a, o: calls.append(o[2]))
    checkpointed = gradients()
    hook.remove()
    assert len(calls) == 2  # the forward and its recompute
    assert torch.equal(calls[0], calls[1])
    for name, gradient in plain.items():
        assert torch.equal(gradient, checkpointed[name]), name


def test_a_recompute_outside_its_replay_is_refused():
    model, ids, other = tiny("olmoe"), batch(), batch(seed=5)
    replay = RoutingReplay(model)
    _, routes = record(model, replay, ids)
    _, others = record(model, replay, other)
    perturb(model, replay)
    model.train()
    model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    with replay.replaying(routes):
        loss = model(input_ids=ids, use_cache=False).logits.sum()
    with pytest.raises(RoutesError, match="after its replaying"):
        loss.backward()
    with replay.replaying(routes):
        loss = model(input_ids=ids, use_cache=False).logits.sum()
    with replay.replaying(others):
        model(input_ids=other, use_cache=False)
        with pytest.raises(RoutesError, match="did not see"):
            loss.backward()
    model(input_ids=other, use_cache=False).logits.sum().backward()  # natural training goes on
    model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": True})
    model.enable_input_require_grads()
    with pytest.raises(RoutesError, match="use_reentrant=False"), replay.replaying(routes):
        model(input_ids=ids, use_cache=False).logits.sum().backward()


@pytest.mark.parametrize("target", ["attention", "router"])
def test_lora(target):
    peft = pytest.importorskip("peft")
    ids = batch()
    kinds = {
        "attention": {"target_modules": ["q_proj", "v_proj"]},
        "router": {"target_modules": [], "target_parameters": ["gate.weight"]},
    }
    model = peft.get_peft_model(
        tiny("qwen3"), peft.LoraConfig(r=2, init_lora_weights=False, **kinds[target])
    ).eval()
    replay = RoutingReplay(model)
    logits, routes = record(model, replay, ids)
    with replay.replaying(routes):
        assert torch.equal(model(input_ids=ids).logits, logits)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "lora_B" in name:
                parameter.add_(torch.randn(parameter.shape, generator=torch.Generator().manual_seed(3)))
    _, moved = record(model, replay, ids)
    assert not torch.equal(moved, routes)
    with replay.replaying(routes):
        got = used_by_suffix(
            model, lambda: model(input_ids=ids).logits.float().logsumexp(-1).sum().backward()
        )
    assert all(torch.equal(e.view(3, 9, -1).to(routes.dtype), routes[:, :, i]) for i, e in enumerate(got))
    gradients = [p.grad for n, p in model.named_parameters() if "lora_B" in n]
    assert gradients
    assert all(g is not None and g.norm() > 0 for g in gradients)


def used_by_suffix(model, run):
    seen, hooks = [], []
    for _, module in model.named_modules():
        if type(module).__name__.endswith("Experts"):
            hooks.append(module.register_forward_pre_hook(lambda m, args: seen.append(args[1])))
    run()
    for hook in hooks:
        hook.remove()
    return seen


@pytest.mark.slow
def test_torch_compile_after_creation_replays_and_before_is_refused():
    ids = batch()
    model = tiny("qwen3", num_hidden_layers=1)
    model.set_experts_implementation("batched_mm")
    replay = RoutingReplay(model)
    logits, routes = record(model, replay, ids)
    torch._dynamo.reset()
    compiled = torch.compile(model, backend="eager")
    perturb(model, replay)
    with replay.replaying(routes):
        eager = model(input_ids=ids).logits
        got = used(model, replay, lambda: compiled(input_ids=ids))
    with replay.replaying(routes):
        torch.testing.assert_close(compiled(input_ids=ids).logits, eager, rtol=1e-5, atol=1e-5)
    assert all(torch.equal(e.view(3, 9, -1).to(routes.dtype), routes[:, :, i]) for i, e in enumerate(got))
    assert not torch.equal(logits, eager)
    with pytest.raises(UnsupportedError, match="already compiled"):
        RoutingReplay(compiled)
    torch._dynamo.reset()


def test_unknown_models_and_routers_are_refused_by_name():
    with pytest.raises(UnsupportedError, match="Sequential has no router: "):
        RoutingReplay(torch.nn.Sequential(torch.nn.Linear(2, 2)))

    class NoisyTopKRouter(torch.nn.Module):
        pass

    model = tiny("qwen3")
    model.model.layers[0].extra = NoisyTopKRouter()
    with pytest.raises(UnsupportedError, match="is a NoisyTopKRouter, which routing replay does not know"):
        RoutingReplay(model)
    model = tiny("qwen3").to("meta")
    with pytest.raises(UnsupportedError, match="sharded or not loaded"):
        RoutingReplay(model)


def test_a_router_of_another_transformers_version_is_proven_or_refused():
    def doubled(name, forward):
        return type(name, (torch.nn.Linear,), {"forward": forward, "norm_topk_prob": True})

    def probabilities(self, x):  # what 5.2 returns first
        p = torch.softmax(torch.nn.functional.linear(x, self.weight), -1)
        top, index = p.topk(2)
        return p, top / top.sum(-1, keepdim=True), index

    def logits_alone(self, x):  # DeepSeek-V3 of 5.2: the block chooses
        return torch.nn.functional.linear(x, self.weight)

    def noisy(self, x):
        p, top, index = probabilities(self, x)
        return p, top * 1.5, index

    ok = torch.nn.Sequential(doubled("Qwen3MoeTopKRouter", probabilities)(8, 4))
    replay = RoutingReplay(ok)
    x = torch.randn(3, 8)
    routes = torch.tensor([[3, 1], [0, 2], [1, 0]], dtype=torch.int8)[None, :, None]
    with replay.replaying(routes):
        p, gates, experts = ok(x)
    assert torch.equal(experts, routes[0, :, 0].long())
    torch.testing.assert_close(gates.sum(-1), torch.ones(3))
    torch.testing.assert_close(gates[0, 0] / gates[0, 1], p[0, 3] / p[0, 1])
    with pytest.raises(UnsupportedError, match="does not return"):
        RoutingReplay(torch.nn.Sequential(doubled("DeepseekV3TopkRouter", logits_alone)(8, 4)))
    with pytest.raises(UnsupportedError, match="in a way routing replay does not know"):
        RoutingReplay(torch.nn.Sequential(doubled("OlmoeTopKRouter", noisy)(8, 4)))


def test_a_block_that_chooses_for_its_router_is_replayed():
    """The shape of DeepSeek-V3 in transformers 5.2, written small."""

    class DeepseekV3TopkRouter(torch.nn.Linear):
        pass

    class DeepseekV3MoE(torch.nn.Module):
        norm_topk_prob, routed_scaling_factor = True, 2.0

        def __init__(self):
            super().__init__()
            self.gate = DeepseekV3TopkRouter(8, 6, bias=False)

        def route_tokens_to_experts(self, logits):
            top, experts = logits.sigmoid().topk(2)
            return experts, 2.0 * top / (top.sum(-1, keepdim=True) + 1e-20)

        def forward(self, x):
            return self.route_tokens_to_experts(self.gate(x))

    block = DeepseekV3MoE()
    model, x = torch.nn.Sequential(block), torch.randn(3, 8)
    before = model(x)
    replay = RoutingReplay(model)
    with replay.recording() as tape:
        assert all(torch.equal(a, b) for a, b in zip(model(x), before, strict=True))
    assert torch.equal(tape.routes(1)[0, :, 0].long(), before[0])
    routes = torch.tensor([[5, 0], [1, 2], [4, 3]], dtype=torch.int8)[None, :, None]
    with replay.replaying(routes):
        experts, gates = model(x)
    want = torch.sigmoid(block.gate(x)).gather(1, routes[0, :, 0].long())
    assert torch.equal(experts, routes[0, :, 0].long())
    torch.testing.assert_close(gates, 2.0 * want / want.sum(-1, keepdim=True))
    gates[:, 0].sum().backward()
    assert block.gate.weight.grad.norm() > 0
    replay.close()
    assert "route_tokens_to_experts" not in vars(block)
    assert torch.equal(model(x)[0], before[0])


def test_nesting_is_refused_and_close_removes_the_hooks():
    model, ids = tiny("olmoe"), batch()
    plain = copy.deepcopy(model)(input_ids=ids).logits
    replay = RoutingReplay(model)
    _, routes = record(model, replay, ids)
    with replay.recording() as tape, pytest.raises(RoutesError, match="already open"):
        replay.replaying(routes).__enter__()
    with pytest.raises(RoutesError, match="or none"):
        tape.routes(3)
    replay.close()
    assert torch.equal(model(input_ids=ids).logits, plain)
    with pytest.raises(RoutesError, match="did not run"), replay.replaying(routes):
        model(input_ids=ids)
