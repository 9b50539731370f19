"""The plain-data seam: everything a report needs, with no torch and no live object in it.

Recording, graph and diagnosis fill a `Session`; every report is drawn from one, fresh or
loaded from a file. Columns are 1-based and `end_column` is exclusive, as editors count them.
"""

from __future__ import annotations

import dataclasses
import json
import platform
import types
import typing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, TypeVar

SCHEMA = 1

Severity = Literal["error", "warning", "info"]
Symptom = Literal["raises", "silent", "warns"]
FlowState = Literal["live", "cut", "values", "off"]
GradientFlow = Literal["flows", "zero", "non-finite", "none", "frozen"]

T = TypeVar("T")


@dataclass
class Location:
    """A span of source text. `text` is the stripped first line of the statement."""

    file: str
    line: int
    column: int = 1
    end_line: int = 0
    end_column: int = 0
    function: str = ""
    text: str = ""


@dataclass
class Related:
    """A second place that belongs to a finding, with its role in the story.

    Roles: `surfaced` (where the program noticed), `via` (a call on the way to the location),
    `cut` (a further cut), `exit`/`return` (where a value left torch and came back),
    `created`, `written`, `saved` (kept for backward), `freed`, `used`, `operation`, `library`,
    `optimizer` (where it is made).
    """

    role: str
    location: Location
    label: str = ""


@dataclass
class PathStep:
    """One row of the path from parameters to loss."""

    kind: Literal["parameter", "source", "op"]
    name: str  # a parameter's name, a variable's, or the operation's ("linear")
    state: FlowState  # live: carries gradient; cut: here it ends; values: numbers only; off: frozen
    shape: list[int] | None = None
    file: str = ""
    line: int = 0
    text: str = ""  # the source expression, shortened


@dataclass
class Edit:
    """Replace the whole lines `line..line+len(before)-1` of `file` by `after` (may be empty)."""

    file: str
    line: int
    before: list[str]
    after: list[str]


@dataclass
class Fix:
    title: str  # imperative, lowercase: "delete the detach"
    edits: list[Edit] = field(default_factory=list)
    safety: str = ""  # "changes gradients only; forward values stay equal"
    deliberate: str = ""  # what to do if the cut is wanted


@dataclass
class Finding:
    """One defect: what it is, where, which parameters, why, what was checked, what to change."""

    code: str
    severity: Severity
    symptom: Symptom
    title: str  # lowercase, no full stop, stands alone
    message: str  # one or two sentences for editors and CI
    location: Location
    label: str = ""  # what is true at the location's span
    related: list[Related] = field(default_factory=list)
    parameters: list[str] = field(default_factory=list)
    path: list[PathStep] = field(default_factory=list)
    hidden_operations: int = 0  # operations beside the path that the drawing leaves out
    why: str = ""
    checked: list[str] = field(default_factory=list)
    inferred: list[str] = field(default_factory=list)
    fix: Fix | None = None
    count: int = 1  # how often it was seen
    first_step: int = 1
    at_end: bool = False  # certain only when the program has ended: not said before


@dataclass
class ParameterState:
    """What became of one parameter in the steps that were looked at."""

    name: str
    shape: list[int]
    requires_grad: bool = True
    gradient: GradientFlow = "none"  # `flows` once it was finite and not all zero
    norm: float | None = None  # largest absolute value of the latest gradient
    optimizer: str = ""  # class of the optimizer that holds it; empty if none does
    moved: bool | None = None  # a step has changed it; None if no step was looked at
    reason: str = ""  # code of the finding that names it, or a few words
    file: str = ""  # where it was made, if that was seen
    line: int = 0

    @property
    def is_plain(self) -> bool:
        """Nothing to say about it: it is frozen, or it gets a gradient and moves."""
        if self.gradient == "frozen":
            return self.reason in ("", "frozen")
        return self.gradient == "flows" and not self.reason and self.moved is not False


@dataclass
class ExceptionInfo:
    type: str
    message: str


@dataclass
class Program:
    argv: list[str] = field(default_factory=list)
    exit_code: int | None = None
    exception: ExceptionInfo | None = None


@dataclass
class GraphNode:
    """One node of the saved flow graph (see docs/design.md)."""

    id: int
    op: str
    inputs: list[int]
    state: FlowState
    shape: list[int] | None = None
    dtype: str = ""
    file: str = ""
    line: int = 0
    name: str = ""  # the parameter's name, for leaves


def system_name() -> str:
    """The system, as platform.platform() says it, but without starting a process to find out.

    That would have Python forget which warnings the program has shown already.
    """
    return f"{platform.system()}-{platform.release()}-{platform.machine()}"


@dataclass
class Session:
    whygrad: str
    torch: str
    schema: int = SCHEMA
    python: str = ""
    platform: str = ""
    program: Program = field(default_factory=Program)
    findings: list[Finding] = field(default_factory=list)
    parameters: list[ParameterState] = field(default_factory=list)
    steps: int = 0
    overhead: dict[str, float] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    # file -> line number -> text: the lines that reports quote, so that a report can be
    # drawn again where the sources are not.
    sources: dict[str, dict[int, str]] = field(default_factory=dict)
    graph: list[GraphNode] = field(default_factory=list)

    def save(self, path: str | Path) -> None:
        Path(path).write_text(json.dumps(to_plain(self)) + "\n", encoding="utf-8")

    @classmethod
    def load(cls, path: str | Path) -> Session:
        """Read a saved session; raises ValueError with a readable reason if it is not one."""
        try:
            data = json.loads(Path(path).read_text(encoding="utf-8"))
        except (UnicodeDecodeError, json.JSONDecodeError) as error:
            raise ValueError(f"not a whygrad session: {error}") from None
        if not isinstance(data, dict) or "findings" not in data or "schema" not in data:
            raise ValueError("not a whygrad session: no findings in it")
        if data["schema"] != SCHEMA:
            raise ValueError(f"session has schema {data['schema']}, this whygrad reads {SCHEMA}")
        try:
            return from_plain(cls, data)
        except (TypeError, KeyError, AttributeError) as error:
            raise ValueError(f"not a whygrad session: {error}") from None


def to_plain(value: Any) -> Any:
    """Dataclasses as dictionaries, ready for JSON."""
    return dataclasses.asdict(value)


def from_plain(kind: type[T], data: Any) -> T:
    """The inverse of `to_plain`; unknown keys are ignored so that newer files still open."""
    return typing.cast(T, _build(kind, data))


def _build(kind: Any, data: Any) -> Any:
    if dataclasses.is_dataclass(kind) and isinstance(kind, type):
        hints = typing.get_type_hints(kind)
        known = {f.name for f in dataclasses.fields(kind)}
        return kind(**{k: _build(hints[k], v) for k, v in data.items() if k in known})
    origin, args = typing.get_origin(kind), typing.get_args(kind)
    if origin is list:
        return [_build(args[0], item) for item in data]
    if origin is dict:
        return {args[0](key): _build(args[1], item) for key, item in data.items()}
    if origin in (types.UnionType, typing.Union):
        inner = [a for a in args if a is not type(None)]
        return None if data is None else _build(inner[0], data)
    return data
