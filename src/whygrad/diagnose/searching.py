"""Finds what a root should get its gradient to, and what keeps the two apart."""

from __future__ import annotations

from whygrad.diagnose import compiled
from whygrad.diagnose.case import Case
from whygrad.graph.links import Linker
from whygrad.graph.separate import separations


def search(case: Case) -> None:
    """Find leaves and separations; look outside torch only as far as that is needed."""
    graph = case.graph
    linker = Linker(graph, case.places)
    fixed = bool(case.leaves)
    for numbers in (False, True):
        while linker.link(graph.ancestors(case.roots), numbers=numbers):
            pass
        if not fixed:
            case.leaves = _leaves(case)
        if case.leaves:
            case.separations = separations(graph, case.roots, case.leaves)
        explained = {target for found in case.separations for target in found.targets}
        if explained and explained.issuperset(case.leaves):
            break
    # Compiled code may have worked with more than what it was given.
    case.unreached = not case.leaves and not compiled.hides_behind(case)


def _leaves(case: Case) -> list[int]:
    """Trainable leaves behind the root: those an optimizer holds, or all if it holds none."""
    behind = case.graph.ancestors(case.roots)
    leaves = sorted((n for n in behind if case.graph.trainable_leaf(n)), reverse=True)
    leaves = [n for n in leaves if n not in case.roots]
    held = {info.node for info in case.question.parameters if info.in_optimizer}
    return [node for node in leaves if node in held] or leaves
