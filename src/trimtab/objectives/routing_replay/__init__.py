"""Routing Replay for mixtures of experts: reuse recorded experts, and keep the gates live.

R2 records with the trainer's engine at the sampling weights, R3 takes what the sampling engine recorded
(arXiv 2507.18071 section 5.3, 2510.11370, 2512.01374 section 3.2). `replay` hooks the routers of a Hugging
Face model, `routes` stores and checks routes, `routers` finds the routers, `gate_recipes` are the
ways from logits to gates, and `router_proof` decides which of them is a router's own.
"""

from trimtab.objectives.routing_replay.recordings import Recording, Replayed
from trimtab.objectives.routing_replay.replay import RoutingReplay
from trimtab.objectives.routing_replay.routes import (
    MISSING,
    bytes_per_token,
    check_routes,
    join_turns,
    pack_routes,
    place_routes,
    route_dtype,
)

__all__ = [
    "MISSING", "Recording", "Replayed", "RoutingReplay", "bytes_per_token", "check_routes", "join_turns",
    "pack_routes", "place_routes", "route_dtype",
]  # fmt: skip
