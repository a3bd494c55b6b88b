"""Routes as tensors: types, checks with the place of the first fault, padding, packing, turns."""

from __future__ import annotations

import pytest
import torch

from trimtab.errors import RoutesError
from trimtab.objectives.routing_replay import (
    MISSING,
    bytes_per_token,
    check_routes,
    join_turns,
    pack_routes,
    place_routes,
    route_dtype,
)


def good(rows=2, tokens=4, layers=3, k=2, experts=6, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.rand(rows, tokens, layers, experts, generator=generator).topk(k, dim=-1).indices


MODEL = {"num_layers": 3, "num_experts": 6, "top_k": 2}


@pytest.mark.parametrize(
    ("experts", "dtype"),
    [(1, torch.int8), (128, torch.int8), (129, torch.int16), (256, torch.int16), (32_768, torch.int16)],
)
def test_the_smallest_type_holds_every_index_and_minus_one(experts, dtype):
    assert route_dtype(experts) == dtype
    values = torch.tensor([MISSING, 0, experts - 1])
    assert torch.equal(values.to(dtype).long(), values)
    for bad in (0, 32_769):
        with pytest.raises(RoutesError, match="1 to 32,768"):
            route_dtype(bad)


def test_bytes_a_token():
    assert bytes_per_token(48, 8, 128) == 384  # Qwen3-30B-A3B
    assert bytes_per_token(58, 8, 256) == 928  # DeepSeek-V3: 58 mixture layers
    routes, _ = check_routes(good(), **MODEL)
    assert routes[0, 0].numel() * routes.element_size() == bytes_per_token(3, 2, 6) == 6


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int16, torch.int32, torch.int64])
def test_good_routes_pass_whatever_the_integer_type(dtype):
    routes, counts = check_routes(good().to(dtype), **MODEL)
    assert routes.dtype == torch.int8
    assert torch.equal(routes.long(), good())
    assert {name: by.tolist() for name, by in counts.items()} == {
        "missing": [0, 0, 0], "out_of_range": [0, 0, 0], "repeated": [0, 0, 0]
    }  # fmt: skip


@pytest.mark.parametrize(
    ("value", "name", "words"),
    [
        ((-1, -1), "missing", "no recorded route"),
        ((0, 6), "out_of_range", "outside 0 to 5"),
        ((-1, 3), "out_of_range", "outside 0 to 5"),
        ((-2, -2), "out_of_range", "outside 0 to 5"),
        ((0, 0), "repeated", "one expert twice"),
    ],
)
def test_bad_routes_are_refused_with_their_place_or_counted_by_layer(value, name, words):
    routes = good()
    routes[1, 2, 1] = torch.tensor(value)
    with pytest.raises(RoutesError, match=f"{words}.*row 1, token 2, layer 1"):
        check_routes(routes, **MODEL)
    clean, counts = check_routes(routes, **MODEL, allow_missing=True)
    assert counts[name].tolist() == [0, 1, 0]
    assert sum(int(by.sum()) for by in counts.values()) == 1
    assert clean[1, 2, 1].tolist() == [MISSING, MISSING]
    needed = torch.ones(2, 4, dtype=torch.bool)
    needed[1, 2] = False
    clean, counts = check_routes(routes, **MODEL, required=needed)
    assert sum(int(by.sum()) for by in counts.values()) == 0
    assert clean[1, 2, 1].tolist() == [MISSING, MISSING]


def test_a_buffer_never_filled_is_not_expert_zero():
    with pytest.raises(RoutesError, match="24 routes have one expert twice"):
        check_routes(torch.zeros(2, 4, 3, 2, dtype=torch.int32), **MODEL)


def test_shapes_and_types_are_refused():
    for bad, words in (
        (good(layers=2), "the model needs"), (good(k=3), "the model needs"), (good()[0], "the model needs"),
        (good().float(), "must be integers"),
    ):  # fmt: skip
        with pytest.raises(RoutesError, match=words):
            check_routes(bad, **MODEL)
    with pytest.raises(RoutesError, match="required must be a boolean mask"):
        check_routes(good(), **MODEL, required=torch.ones(2, 3, dtype=torch.bool))
    routes, _ = check_routes(good(rows=0), **MODEL)
    assert routes.shape == (0, 4, 3, 2)


def test_rows_find_their_tokens_under_left_and_right_padding():
    mask = torch.tensor([[0, 0, 1, 1, 1], [1, 1, 0, 0, 0], [1, 0, 1, 0, 1]])
    rows = [good(1, int(n), seed=i)[0].to(torch.int8) for i, n in enumerate(mask.sum(1))]
    placed, short = place_routes(rows, mask)
    for i, row in enumerate(rows):
        assert torch.equal(placed[i][mask[i].bool()], row)
        assert (placed[i][~mask[i].bool()] == MISSING).all()
    assert short.tolist() == [0, 0, 0]
    assert torch.equal(place_routes([row.to(torch.uint8) for row in rows], mask)[0].long(), placed.long())
    assert torch.equal(pack_routes(placed, mask)[0], torch.cat(rows))
    placed, short = place_routes([row[:-1] for row in rows], mask, allow_short=True)
    assert short.tolist() == [1, 1, 1]
    assert (placed[0, 4] == MISSING).all()
    assert torch.equal(placed[0, 2:4], rows[0][:2])
    with pytest.raises(RoutesError, match="row 0 has 2 routes for 3 tokens"):
        place_routes([row[:-1] for row in rows], mask)
    with pytest.raises(RoutesError, match="row 1 has 3 routes for 2 tokens"):
        place_routes([rows[0], rows[0], rows[2]], mask, allow_short=True)
    with pytest.raises(RoutesError, match="2 rows of routes"):
        place_routes(rows[:2], mask)
    with pytest.raises(RoutesError, match="do not fit"):
        pack_routes(placed[:, :3], mask)


def test_turns_append_and_a_prefix_sent_again_is_refused():
    one, two = good(1, 3, seed=1)[0], good(1, 2, seed=2)[0]
    assert torch.equal(join_turns([(0, one), (3, two)]), torch.cat([one, two]))
    with pytest.raises(RoutesError, match="turn 1 starts at token 0, but 3 have routes"):
        join_turns([(0, one), (0, torch.cat([one, two]))])
    with pytest.raises(RoutesError, match="turn 1 starts at token 5, routes end at 3"):
        join_turns([(0, one), (5, two)])
    with pytest.raises(RoutesError, match="turn 0 starts at token 2"):
        join_turns([(2, one)])
    gapped = join_turns([(0, one), (5, two)], allow_gaps=True)
    assert gapped.shape[0] == 7
    assert (gapped[3:5] == MISSING).all()
    assert torch.equal(gapped[5:], two)
    bytes_ = join_turns([(0, one.to(torch.uint8)), (5, two.to(torch.uint8))], allow_gaps=True)
    assert torch.equal(bytes_.long(), gapped)
    with pytest.raises(RoutesError, match="at least one turn"):
        join_turns([])
    with pytest.raises(RoutesError, match="turn 1 has routes"):
        join_turns([(0, one), (3, two[:, :1])])
