"""What a recording consists of: plain data that the graph stage reads."""

from __future__ import annotations

from dataclasses import dataclass, field
from types import CodeType
from typing import Any, Literal, NamedTuple

from whygrad.record.accounts import Account, GradientState, Range, ScalerUse, Sizes, Trace

# Gradient mode at an event: 0 is on; a positive number names the switch that turned it off;
# these two say that no switch of the program was seen.
GRAD_ON = 0
INSIDE_FUNCTION = -1  # a custom Function's forward, which torch runs with gradients off
INFERENCE_UNSEEN = -2

CHECKED = "checked"  # in place of a method: the function that gradcheck() was given
UNRECORDED = -(1 << 40)  # in place of the node of a tensor that came and went unseen


class Event(NamedTuple):
    """One torch call. Inputs are node numbers: events count up from 0, sources down from -1."""

    op: str
    site: int  # nearest place outside torch
    inputs: tuple[int, ...]
    live: bool  # its output requires grad
    mode: int
    shape: tuple[int, ...] | None
    dtype: Any
    sequence: int  # autograd's node counter after the call
    stack: int  # places from the inside out; 0 when not taken
    evidence: str = ""  # how an edge from outside torch was found: "memory", "equal values"
    scalar: bool = False  # a Python number took part while values had left torch


class Switch(NamedTuple):
    """A place that turned gradients off (or on)."""

    kind: str  # no_grad | set_grad_enabled | inference_mode | enable_grad
    enabled: bool
    site: int
    stack: int
    decorated: tuple[str, int] | None  # file and first line of the decorated function
    inside_torch: bool  # torch's own code did it, on behalf of the call at `site`
    checkpoint: bool = False  # to run a re-entrant checkpoint for the first time


@dataclass(slots=True)
class Source:
    """A tensor that no recorded call made: a parameter, data, or something made out of sight."""

    requires_grad: bool
    parameter: bool
    shape: tuple[int, ...] | None
    dtype: Any
    stack: int  # where it was first seen
    origin: int | None = None  # the node whose values it was made from, or last written with
    made_by: str = ""  # the constructor that made it from its origin: nn.Parameter(x)
    flag_stack: int = 0  # where requires_grad was last set
    born_frozen: bool = False
    born: int = 0  # the number of the next event when it was first seen


class Flagged(NamedTuple):
    """A tensor was told to take gradients, or not to."""

    time: int  # the number of the next event
    stack: int
    value: bool


class Write(NamedTuple):
    """An in-place change of a tensor's memory."""

    time: int  # the number of the next event: all earlier ones came before the write
    address: int  # of the first element written; 0 where the tensor got other memory
    end: int  # behind the last one
    version: int  # autograd's counter after it
    op: str
    stack: int
    node: int  # of the tensor, until then
    silent: bool  # autograd's counter does not notice


class Pass(NamedTuple):
    """A backward() or autograd.grad() that went through."""

    time: int
    roots: tuple[int, ...]
    stack: int
    retained: bool  # the graph was kept for another time
    call: str  # backward | grad
    number: int  # how many backward() calls there had been


ChangeKind = Literal["call", "step", "data"]


@dataclass(slots=True)
class Change:
    """What changed a value that was still needed: a call, or an optimizer's step."""

    kind: ChangeKind
    op: str  # the operation, or the optimizer's class
    time: int
    stack: int
    node: int | None = None  # of what was changed, until then


SavedState = Literal["stale", "detached", "overwritten"]


@dataclass(slots=True)
class SavedValue:
    """A value that autograd kept for backward, and what became of it."""

    event: int | None  # the operation that kept it
    function: str  # autograd's own name: SigmoidBackward0
    name: str  # which of its values: "result", "self", "weight"
    state: SavedState
    shape: tuple[int, ...] | None = None
    leaf: int | None = None  # node of the parameter whose memory it is
    changes: list[Change] = field(default_factory=list)  # since it was kept, oldest first
    order: int = 0  # autograd works from the highest down
    since: int = -1  # the last event that had begun when it was kept


@dataclass(slots=True)
class Autopsy:
    """What autograd's own graph looked like when a backward() failed, or was about to err."""

    saved: list[SavedValue]  # what is not as it was kept
    freed: frozenset[int]  # events whose values autograd has let go of
    passes: list[Pass]  # earlier ones, oldest first
    steps: list[tuple[int, frozenset[int]]]  # when optimizers stepped, and what they hold
    updates: list[int]  # when parameters were written to, by a step or by hand
    optimizers: list[frozenset[int]]  # the nodes of the parameters that each of them holds


@dataclass(slots=True)
class Kept:
    """Graphs of past steps that are still alive, and more with every step."""

    node: int  # one of the results that keep them
    steps: int  # how many steps' graphs are alive
    nodes: int  # of autograd's graph
    held_bytes: int  # of values kept for a backward() that did not come
    chained: bool  # one result holds all the steps: a running sum
    container: str  # the name of the collection that holds the results, if it has one


class Site(NamedTuple):
    code: CodeType
    lasti: int


@dataclass(slots=True)
class ParameterInfo:
    """A parameter as the user knows it, at the time of a question."""

    node: int
    name: str
    root: int  # which outermost module it belongs to
    owner: str  # variable or attribute that holds that module, "" if unknown
    module: str  # dotted path of the module that holds it directly
    module_types: tuple[str, ...]  # classes from the outermost module down to that one
    requires_grad: bool
    has_grad: bool
    in_optimizer: bool
    shape: tuple[int, ...]
    registered: bool = True  # found through a module, not just as a bare tensor
    group_frozen: bool = False  # the optimizer's parameter group holds nothing that trains
    gradient: GradientState = "none"  # over all looks so far
    looks: int = 0  # how many that were, counting those that found a gradient
    norm: float | None = None  # largest absolute value of the latest gradient
    moved: bool | None = None  # a step has changed it; None if no step was looked at
    optimizer: int = -1  # number of the optimizer that holds it
    # Where it is kept if no module knows of it: "hids[0][0].weight", below a module's attribute.
    kept_as: str = ""
    keeper: str = ""  # the class of the module with that attribute
    keeps_in: str = ""  # what lies between: "list", "tuple", "dict", "" for the attribute itself
    training: bool = True  # the mode of its outermost module
    loaded: bool = False  # its values were loaded, or an earlier optimizer had moved it


class Given(NamedTuple):
    """A tensor that a failing call of torch's was given."""

    name: str  # torch's name for the argument, or its place: "0"
    node: int
    shape: tuple[int, ...] | None
    dtype: str  # "float32"
    layout: str  # "strided"
    device: str  # "cpu"
    requires_grad: bool
    leaf: bool


class Absent(NamedTuple):
    """A gradient that the program read and that was None."""

    node: int  # of the tensor that has none
    stack: int  # where it was read
    call: str  # ".grad", or "grad" where torch.autograd.grad() gave None
    leaf: bool
    requires_grad: bool
    roots: tuple[int, ...] = ()  # what torch.autograd.grad() started from


class Made(NamedTuple):
    """An object of torch's that took part in a failing call, and where the program made it."""

    kind: str  # optimizer | scheduler | scaler | module | checkpoint | ...
    type: str  # its class
    stack: int  # 0 if that was not seen
    born: int = 0  # the number of the next event then


@dataclass(slots=True)
class Definition:
    """A custom Function or operator of the program's that took part."""

    name: str  # the class's, "ns::op" for an operator
    methods: dict[str, tuple[str, int]]  # "forward", "backward", ... -> file and first line
    applied: int = 0  # the stack of its (latest) call
    autograd_name: str = ""  # "ScaleBackward"
    wanted: tuple[bool, ...] = ()  # for each argument of forward: does it want a gradient?
    # For each gradient that torch counts: the place of its argument, -1 where that is unknown.
    gradients: tuple[int, ...] = ()
    # Its other calls: the stack of each, and which arguments wanted a gradient then.
    others: list[tuple[int, tuple[bool, ...]]] = field(default_factory=list)


@dataclass(slots=True)
class Altered:
    """A tensor that a custom Function keeps as a plain attribute, and that was written to since."""

    function: Definition
    attribute: str
    shape: tuple[int, ...] | None
    changes: list[Change]


@dataclass(slots=True)
class HookUse:
    """A hook on gradients that the program has registered."""

    kind: str  # the method that registered it: register_hook, register_full_backward_hook, ...
    name: str  # the function's own name, "<lambda>" if it has none
    file: str  # where it is defined
    line: int
    stack: int  # where it was registered
    owner: str = ""  # dotted name of the module, if it is one's
    node: int | None = None  # of the tensor, if it is one's
    removed: bool = False
    removed_at_times: bool = False  # others that the same line registered were removed
    column: int = 0  # of its first expression on that line: two lambdas can share a line
    at_work: bool = False  # it is the one that torch was running
    steps: int = 0  # of optimizers that it has lived through


@dataclass(slots=True)
class Transform:
    """A transform of torch.func or autograd.functional that was at work."""

    name: str  # vmap, grad, jacrev, hessian, ...
    stack: int  # the line that called it
    function: tuple[str, int] | None = None  # file and first line of the own function it runs
    function_name: str = ""
    results: list[Given] = field(default_factory=list)  # the tensors that the function returned


class LayerRun(NamedTuple):
    """A module of torch's that was running when it complained."""

    name: str  # dotted, in the outermost module that was running; empty for that one itself
    type: str
    stack: int  # where it, or the module around it, was called
    direct: bool  # that line calls this very module
    node: int | None  # of a parameter or a buffer of its own


class Holding(NamedTuple):
    """A parameter that a failing call worked on, such as one of the optimizer that stepped."""

    node: int
    dtype: str  # "float32"
    gradient: str  # the layout of its gradient, "strided"; empty if it had none


@dataclass(slots=True)
class History:
    """What gradients had been through when torch complained."""

    account: Account
    scaling: list[ScalerUse]  # the latest calls of scalers, oldest first
    traces: list[Trace]
    sizes: list[Sizes]
    values: dict[int, Range] = field(default_factory=dict)  # node -> numbers, where they matter
    # Parameter -> where it was converted after its model was wrapped for several processes.
    converted: dict[int, int] = field(default_factory=dict)
    writes: list[Change] = field(default_factory=list)  # the latest to each parameter involved


class Again(NamedTuple):
    """An operation that a checkpointed block ran a second time."""

    op: str
    site: int
    stack: int
    shape: tuple[int, ...] | None
    dtype: Any


@dataclass(slots=True)
class Recomputed:
    """The second run of a checkpointed block."""

    first: int  # the number of the event with which the first run began
    stack: int  # of the checkpoint() call
    outer: int  # the stack from which it was run again: that of the backward()
    operations: list[Again] = field(default_factory=list)
    returned: bool = False  # it ran to the end; autograd stops it as soon as it has enough


class Block(NamedTuple):
    """What a re-entrant checkpoint runs."""

    name: str
    file: str
    line: int
    parameters: tuple[int, ...]  # the nodes of those in it that want gradients
    trains: bool  # it has any


@dataclass(slots=True)
class Complaint:
    """An exception or a warning of torch's, in its own words, and what took part in it."""

    message: str  # its id in the catalogue; empty if it is not known
    warning: bool
    stack: int  # innermost own code: of a hook or a custom backward, if torch was running that
    outer: int  # the line that called torch in the first place
    calls: tuple[str, ...] = ()  # torch's own functions, from that line on inwards
    given: list[Given] = field(default_factory=list)
    texts: dict[str, str] = field(default_factory=dict)  # plain arguments: use_reentrant -> True
    made: list[Made] = field(default_factory=list)
    functions: list[Definition] = field(default_factory=list)
    hooks: list[HookUse] = field(default_factory=list)
    recomputed: Recomputed | None = None  # the latest, if it is about checkpoints
    block: Block | None = None  # of the checkpoint that was about to run
    gradients_off: bool = False  # by the program itself
    transforms: list[Transform] = field(default_factory=list)  # outermost first
    layer: LayerRun | None = None
    held: list[Holding] = field(default_factory=list)
    history: History | None = None
    failed: int | None = None  # the forward operation whose backward raised
    failed_function: str = ""  # autograd's own name for it
    failed_surely: bool = True  # no other operation could have raised
    uncaught: bool = False  # it ended the program
    absent: list[Absent] = field(default_factory=list)  # gradients read as None, latest first


QuestionKind = Literal[
    "backward-raised",
    "grad-raised",
    "operation-raised",
    "call-raised",
    "warned",
    "no-gradient",
    "overwritten",
    "kept-alive",
    "context-changed",
    "health",
    "asked",
]


@dataclass(slots=True)
class Question:
    """Something went wrong (or was asked): everything known at that moment, as plain data."""

    kind: QuestionKind
    roots: tuple[int, ...]  # nodes the gradient starts from
    targets: tuple[int, ...]  # nodes that should get one and did not
    stack: int  # where it was noticed
    step: int
    error_type: str = ""
    error_text: str = ""
    parameters: list[ParameterInfo] = field(default_factory=list)
    had_gradient: frozenset[int] = frozenset()  # parameters that had one at an optimizer's step
    root_stacks: dict[int, int] = field(default_factory=dict)  # root -> where backward() was
    autopsy: Autopsy | None = None
    kept: Kept | None = None
    changes: list[Change] = field(default_factory=list)  # writes to the memory of the targets
    raised_at: int = 0  # the program's own code inside backward() that raised: a hook
    account: Account | None = None  # for questions of kind "health"
    traces: list[Trace] = field(default_factory=list)  # of the latest passes that were followed
    sizes: list[Sizes] = field(default_factory=list)  # oldest first
    complaint: Complaint | None = None
    altered: list[Altered] = field(default_factory=list)
    passes: list[Pass] = field(default_factory=list)  # earlier ones, oldest first
    hooks: list[HookUse] = field(default_factory=list)  # left behind by accident


@dataclass(slots=True)
class Recording:
    """A view of the record for the stages that follow. Shared, not copied: read it at once."""

    events: list[tuple[Any, ...]]  # in the order of Event's fields
    base: int  # number of the first event still held
    sources: dict[int, Source]
    switches: list[Switch]
    sites: list[Site]
    stacks: list[tuple[int, ...]]
    first_stacks: dict[int, int]  # site -> the stack when something was first recorded there
    exits: list[int]  # events at which values left torch, oldest first
    flags: dict[int, Flagged] = field(default_factory=dict)  # node -> when it was last flagged

    def event(self, node: int) -> Event | None:
        """The event with this number, or None if it was dropped or is a source."""
        index = node - self.base
        held = 0 <= index < len(self.events) and node >= 0
        return Event(*self.events[index]) if held else None
