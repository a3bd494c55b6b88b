"""The lab's three tools as a launch check calls them, and the same behind a database of two connections."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from trimtab.lab.database import TOOL_NAMES, World
from trimtab.tools.tool_definition import Tool

WORLD = World(seed=0)
CONNECTIONS, MAX_WAITING, QUERY_S = 2, 4, 0.005


class SmallPool:
    """Two connections; a query that finds four others waiting is refused, as databases do under load."""

    def __init__(self) -> None:
        self.free = asyncio.Semaphore(CONNECTIONS)
        self.waiting = 0

    async def query(self, name: str, item: str) -> str:
        if self.waiting >= MAX_WAITING:
            raise ConnectionError("too many connections")
        self.waiting += 1
        try:
            await self.free.acquire()
        finally:
            self.waiting -= 1
        try:
            await asyncio.sleep(QUERY_S)
            return WORLD.query(name, item).value
        finally:
            self.free.release()


def lab_tool(name: str, pool: SmallPool | None = None) -> Tool:
    """A tool of the world, as `price(item)`."""

    async def run(arguments: Mapping[str, Any]) -> str:
        if pool is not None:
            return await pool.query(name, arguments["item"])
        await asyncio.sleep(QUERY_S)
        return WORLD.query(name, arguments["item"]).value

    items = {"type": "string", "enum": WORLD.items[:64]}
    schema = {"type": "object", "properties": {"item": items}, "required": ["item"]}
    return Tool(name=name, run=run, schema=schema, target="world", idempotent=True, timeout_s=1.0)


TOOLS = [lab_tool(name) for name in TOOL_NAMES]
OVERLOADED = [lab_tool(name, SmallPool() if name == "stock" else None) for name in TOOL_NAMES]
