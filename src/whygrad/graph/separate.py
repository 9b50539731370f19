"""Queries: which cuts separate these targets from this root, and what if one were restored."""

from __future__ import annotations

import heapq
from collections.abc import Iterable
from dataclasses import dataclass

from whygrad.graph.flow import (
    CONTROL_EDGE,
    COST,
    INFERRED_EDGE,
    SMUGGLED_EDGE,
    STEP,
    Block,
    FlowGraph,
)


@dataclass(slots=True)
class Path:
    """The cheapest way from a target to the root, in the order in which values flowed."""

    target: int
    root: int
    nodes: list[int]
    cuts: list[Block]  # from the target towards the root; empty: nothing is in the way
    harmless: set[tuple[object, ...]]  # blocks that a custom Function's own backward bridges


@dataclass(slots=True)
class Separation:
    """One set of cuts in a row, and all the targets that it keeps from the root."""

    cuts: list[Block]
    targets: list[int]
    path: Path
    root: int
    freed_alone: int  # targets that reach the root when only the first cut is restored
    freed_together: int

    @property
    def first(self) -> Block:
        return self.cuts[0]

    def feeder(self, node: int) -> int | None:
        """The node before this one on the path: whose value is lost at it."""
        nodes = self.path.nodes
        index = nodes.index(node) if node in nodes else 0
        return nodes[index - 1] if index > 0 else None


def paths_to(graph: FlowGraph, root: int, targets: Iterable[int]) -> dict[int, Path]:
    """The cheapest path from each target that any value path connects to the root."""
    wanted = set(targets)
    best: dict[int, float] = {root: 0.0}
    towards: dict[int, int] = {}  # the consumer on the cheapest path
    heap = [(0.0, -root)]
    settled: set[int] = set()
    while heap:
        cost, negative = heapq.heappop(heap)
        node = -negative
        if node in settled:
            continue
        settled.add(node)
        crossing = _crossing_cost(graph, node, towards.get(node))
        for feeder in graph.inputs(node):
            if feeder in settled:
                continue
            through = cost + crossing + _edge_cost(graph, node, feeder)
            if through < best.get(feeder, float("inf")):
                best[feeder] = through
                towards[feeder] = node
                heapq.heappush(heap, (through, -feeder))
    return {target: _path(graph, target, root, towards) for target in wanted & settled}


def _crossing_cost(graph: FlowGraph, node: int, consumer: int | None) -> float:
    block = graph.block(node)
    if block is None:
        return STEP
    if consumer is not None:
        following = graph.block(consumer)
        if following is not None and following.key == block.key:
            return STEP
    return COST[block.kind]


def _edge_cost(graph: FlowGraph, node: int, feeder: int) -> float:
    cost = 0.0
    if feeder in graph.links.get(node, ()):
        cost += INFERRED_EDGE
    if not graph.floating(feeder) and graph.floating(node) and len(graph.inputs(node)) > 1:
        cost += CONTROL_EDGE
    if graph.is_smuggled(feeder, node):
        cost += SMUGGLED_EDGE
    return cost


def _path(graph: FlowGraph, target: int, root: int, towards: dict[int, int]) -> Path:
    nodes = [target]
    while nodes[-1] != root:
        nodes.append(towards[nodes[-1]])
    # A target's own block (a rebuilt leaf) lies before it, not between it and the root.
    blocks: list[Block] = []
    for node in nodes[1:] if target != root else nodes:
        block = graph.block(node)
        if block is not None and not (blocks and blocks[-1].key == block.key):
            blocks.append(block)
    # What happens inside a custom Function is to blame only if nothing else is in the way.
    cuts = [block for block in blocks if not block.inside_function] or blocks
    return Path(target, root, nodes, cuts, {b.key for b in blocks} - {b.key for b in cuts})


def separations(graph: FlowGraph, roots: Iterable[int], targets: Iterable[int]) -> list[Separation]:
    """Group the targets by what keeps them from the roots; the earlier roots take precedence."""
    left = set(targets)
    found: list[Separation] = []
    for root in roots:
        paths = paths_to(graph, root, left)
        groups: dict[tuple[object, ...], list[Path]] = {}
        for target in sorted(paths, reverse=True):
            path = paths[target]
            left.discard(target)
            if path.cuts:
                key = tuple(block.key for block in path.cuts)
                groups.setdefault(key, []).append(path)
        for group in groups.values():
            # The shortest path reads best; the others differ only in where they begin.
            shown = min(group, key=lambda path: (len(path.nodes), -path.target))
            behind = [path.target for path in group]
            harmless = {key for path in group for key in path.harmless}
            keys = {block.key for block in shown.cuts} | harmless
            found.append(
                Separation(
                    cuts=shown.cuts,
                    targets=behind,
                    path=shown,
                    root=root,
                    freed_alone=len(reached(graph, root, {shown.cuts[0].key} | harmless, behind)),
                    freed_together=len(reached(graph, root, keys, behind)),
                )
            )
    found.sort(key=lambda s: (-len(s.targets), len(s.cuts)))
    return found


def reached(
    graph: FlowGraph, root: int, restored: set[tuple[object, ...]], targets: Iterable[int]
) -> set[int]:
    """The targets from which gradient would flow if the cuts with these keys were gone."""
    seen = {root}
    waiting = [root]
    while waiting:
        node = waiting.pop()
        block = graph.block(node)
        if block is not None and block.key not in restored:
            continue
        for feeder in graph.inputs(node):
            if feeder not in seen:
                seen.add(feeder)
                waiting.append(feeder)
    return seen.intersection(targets)
