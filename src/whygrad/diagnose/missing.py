"""Parameters without a gradient that no cut explains: unused, or used for nothing."""

from __future__ import annotations

from dataclasses import dataclass

from whygrad.diagnose import compiled
from whygrad.diagnose.case import Case
from whygrad.graph.consumers import Consumers
from whygrad.record.events import ParameterInfo


@dataclass(slots=True)
class Missing:
    """The targets of a question that nothing ties to its roots."""

    consumers: Consumers
    unused: list[int]  # by any operation with gradient
    astray: list[int]  # used, but nothing computed from them reaches a root
    hidden: bool = False  # compiled code ran, which may have used them out of sight


def awaiting(case: Case) -> set[int]:
    """Targets with a loss of their own that no backward() was called on.

    Asked only where an optimizer has nothing at all to use: a loss that is merely looked at is
    common, and so is a cut beside it.
    """
    targets = set(case.question.targets)
    held: dict[int, set[int]] = {}
    for info in case.question.parameters:
        if info.optimizer >= 0 and info.requires_grad:
            held.setdefault(info.optimizer, set()).add(info.node)
    whole = [nodes for nodes in held.values() if nodes <= targets]
    if not whole or len(held) < 2:
        return set()
    consumers = Consumers(case.graph.recording)
    roots = set(case.question.roots)
    found: set[int] = set()
    for nodes in whole:
        ends = consumers.ends(nodes)
        if any(case.shape(end) == [] and end not in roots for end in ends):
            found |= nodes
    return found


def unconnected(case: Case) -> Missing | None:
    """None for other questions, and where the record does not reach back far enough."""
    if case.question.kind != "no-gradient" or not case.roots:
        return None
    if not any(info.in_optimizer for info in case.question.parameters):
        return None  # nobody has said what should train
    cut = {target for separation in case.separations for target in separation.targets}
    left = [target for target in case.question.targets if target not in cut]
    if not left:
        return None
    behind = case.graph.ancestors(case.roots)
    if any(0 <= node < case.graph.recording.base for node in behind):
        return None
    consumers = Consumers(case.graph.recording)
    # What autograd.grad() was asked about is not waiting for a backward().
    left = [
        node
        for node in left
        if (node in case.awaiting or node not in behind) and node not in consumers.differentiated
    ]
    used = [node for node in left if consumers.is_used(node)]
    hidden = bool(compiled.calls(case.graph.recording))
    astray = [] if hidden else used
    return Missing(consumers, [node for node in left if node not in used], astray, hidden)


@dataclass(slots=True)
class Part:
    """A largest module, or else a single parameter, all of which is among some parameters."""

    path: str  # empty: the outermost module itself
    members: list[ParameterInfo]
    whole: bool  # a module, not a parameter

    @property
    def attribute(self) -> str:
        """The attribute by which it is reached: `blocks` for `blocks.3`."""
        pieces = [piece for piece in self.path.split(".") if piece.isidentifier()]
        return pieces[-1] if pieces else ""

    @property
    def is_element(self) -> bool:
        """Whether it is one of those in a list or dictionary of modules or parameters."""
        types = self.members[0].module_types
        depth = self.path.count(".") + 1
        above = types[depth - 1] if self.path and depth <= len(types) else ""
        return above in ("ModuleList", "ModuleDict", "ParameterList", "ParameterDict")

    @property
    def above(self) -> tuple[str, ...]:
        """The classes of the modules around it."""
        depth = self.path.count(".") + 1 if self.path else 0
        return self.members[0].module_types[:depth]


def parts(infos: list[ParameterInfo], everything: list[ParameterInfo]) -> list[Part]:
    """Parameters, gathered into the largest modules that consist of nothing else."""
    chosen = {info.node for info in infos}
    found: dict[tuple[int, str], Part] = {}
    for info in infos:
        same = [i for i in everything if i.root == info.root and i.registered and i.requires_grad]
        pieces = info.module.split(".") if info.module else []
        for depth in range(len(pieces) + 1):
            path = ".".join(pieces[:depth])
            inside = [i for i in same if is_inside(i, path)]
            if inside and all(i.node in chosen for i in inside):
                found.setdefault((info.root, path), Part(path, [], True)).members.append(info)
                break
        else:
            own = info.name.rpartition(".")[2]
            path = ".".join([*pieces, own])
            found[info.root, path] = Part(path, [info], False)
    return list(found.values())


def is_inside(info: ParameterInfo, path: str) -> bool:
    """Whether a parameter belongs to the module at a path, or to one below it."""
    return not path or info.module == path or info.module.startswith(f"{path}.")
