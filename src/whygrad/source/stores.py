"""Where a training loop puts values that outlive its iterations.

A graph stays alive as long as something holds its end. Given the frames of a stack that runs
again and again, these are the statements in their functions that may hold one: lists, entries
and running sums that are older than an iteration, with values that are not plain numbers.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from whygrad.source.bindings import Names, Scope, dotted_name, first_part, names_of
from whygrad.source.callees import Function, callee, given_back
from whygrad.source.calls import bound_arguments
from whygrad.source.files import SourceFile, first_line_of, load
from whygrad.source.graph_carriers import GraphCarriers
from whygrad.source.reaching import LOOPS, origins
from whygrad.source.reuse import statements_around
from whygrad.source.spans import Span
from whygrad.source.storing import Kind, Storing, called, holder, is_kept, storings
from whygrad.source.tree import node_span, statement_at, text_of
from whygrad.source.values import reads


@dataclass(frozen=True)
class Store:
    """`container` and `value` are source text; for `total += loss` these are its two sides."""

    span: Span
    container: str
    value: str
    kind: Kind


@dataclass(frozen=True)
class _Candidate:
    store: Store
    distance: tuple[int, int]  # frames from the innermost one, loops from the frame's line
    containers: frozenset[str]  # names by which it may be asked for
    values: frozenset[str]
    further: frozenset[str]  # what the values were assigned from


def stores(spans: Sequence[Span]) -> list[Store]:
    """The stores in the functions of a stack's frames (innermost first), likeliest first."""
    return [candidate.store for candidate in _candidates(spans)]


def best_store(
    spans: Sequence[Span], container: str | None = None, value: str | None = None
) -> Store | None:
    """The store that fits what is known about it; None if none does, or several do alike.

    `container` and `value` are names as in the source. A value may also be known by what it was
    assigned from: as `loss`, where `row = {"loss": loss}` is stored, or the `output` of a method
    that returned it.
    """
    rated = [
        (misfit, candidate.distance, candidate.store)
        for candidate in _candidates(spans)
        if (misfit := _misfit(candidate, container, value)) is not None
    ]
    rated.sort(key=lambda entry: entry[:2])
    unclear = len(rated) > 1 and rated[0][:2] == rated[1][:2]
    return rated[0][2] if rated and not unclear else None


def only_store_into(files: Iterable[str], container: str) -> Store | None:
    """The one statement in these files that puts something into a container of this name."""
    found: list[Store] = []
    for file in files:
        source = load(file)
        names = names_of(source)
        for statement in names.blocks if names is not None else ():
            for storing in storings(statement):
                name = dotted_name(storing.container) or ""
                if storing.kind != "sum" and name.rpartition(".")[2] == container:
                    text = ", ".join(text_of(value, file) for value in storing.values)
                    found.append(Store(node_span(source, statement), name, text, storing.kind))
    return found[0] if len(found) == 1 else None


def _misfit(
    candidate: _Candidate, container: str | None, value: str | None
) -> tuple[int, int] | None:
    """How far a candidate is from what is asked for; None if nothing of it fits."""
    in_place = container is None or _is_named(candidate.containers, container.rpartition(".")[2])
    if value is None:
        return (0, 0) if in_place else None
    if _is_named(candidate.values, value):
        return int(not in_place), 0
    if _is_named(candidate.further, value):
        return int(not in_place), 1
    return (0, 2) if in_place and container is not None else None


def _is_named(names: Iterable[str], wanted: str) -> bool:
    return any(name == wanted or name.endswith(f".{wanted}") for name in names)


def _candidates(spans: Sequence[Span]) -> list[_Candidate]:
    found: dict[tuple[Span, str], _Candidate] = {}
    for index, span in enumerate(spans):
        frame = _Frame.at(span, index)
        for candidate in frame.candidates() if frame is not None else ():
            found.setdefault((candidate.store.span, candidate.store.container), candidate)
    return sorted(found.values(), key=lambda c: (c.distance, c.store.span.extent))


def _carrying(carriers: GraphCarriers, storing: Storing) -> list[ast.expr]:
    """The stored values that may keep a graph alive."""
    if storing.kind == "sum" and carriers.is_without_gradients(storing.statement):
        return []
    return [value for value in storing.values if carriers.may_carry(value)]


@dataclass(frozen=True)
class _Frame:
    """A function of the stack, and the loops in it that are under way."""

    source: SourceFile
    names: Names
    scope: Scope
    loops: Sequence[ast.stmt]  # innermost first
    index: int

    @classmethod
    def at(cls, span: Span, index: int) -> _Frame | None:
        source, statement = load(span.file), statement_at(span)
        names = names_of(source)
        if names is None or statement is None:
            return None
        loops = [s for s in statements_around(names, statement) if isinstance(s, LOOPS)]
        return cls(source, names, names.scope_at(statement), loops, index)

    def candidates(self) -> Iterator[_Candidate]:
        for statement in self._statements(self.scope):
            call = called(statement)
            function = callee(self.names, call) if call is not None else None
            if call is not None and function is not None:
                yield from self._stored_by(statement, call, function)
            else:
                yield from self._stored_in(statement)

    def _statements(self, scope: Scope) -> list[ast.stmt]:
        return [s for s in self.names.blocks if self.names.scope_at(s) is scope]

    def _stored_in(self, statement: ast.stmt) -> Iterator[_Candidate]:
        carriers = GraphCarriers(self.source, self.names)
        for storing in storings(statement):
            carrying = _carrying(carriers, storing)
            if carrying and is_kept(self.names, storing, self._shared_loop(statement)):
                yield self._candidate(storing, statement, carrying, [storing.container])

    def _stored_by(
        self, statement: ast.stmt, call: ast.Call, function: Function
    ) -> Iterator[_Candidate]:
        """What a function of the same file keeps of the arguments that a statement gives it."""
        scope = self.names.scopes[function]
        given = self._carrying_arguments(call, function, scope)
        carriers = GraphCarriers(
            self.source,
            self.names,
            lambda of, name: of is not scope or first_part(name) in given,
        )
        receiver = holder(call.func.value) if isinstance(call.func, ast.Attribute) else None
        for storing in (s for part in self._statements(scope) for s in storings(part)):
            carrying = _carrying(carriers, storing)
            named = {first_part(name) for name, _ in reads(*carrying)}
            arguments = [argument for name in named for argument in given.get(name, ())]
            if arguments and is_kept(self.names, storing, None):
                holders = [storing.container, *([receiver] if receiver is not None else [])]
                yield self._candidate(storing, statement, arguments, holders)

    def _carrying_arguments(
        self, call: ast.Call, function: Function, scope: Scope
    ) -> dict[str, list[ast.expr]]:
        carriers, place = GraphCarriers(self.source, self.names), first_line_of(function)
        given = {
            name: bound_arguments(self.names, call, frozenset({name}), (self.source.name, place))
            for name in scope.parameters
            if name != scope.instance
        }
        return {
            name: carrying
            for name, values in given.items()
            if (carrying := [value for value in values or () if carriers.may_carry(value)])
        }

    def _shared_loop(self, statement: ast.stmt) -> ast.stmt | None:
        """The innermost loop under way that the statement is in too."""
        around = statements_around(self.names, statement)
        return next((loop for loop in self.loops if loop in around), None)

    def _candidate(
        self,
        storing: Storing,
        statement: ast.stmt,
        values: list[ast.expr],
        holders: list[ast.expr],
    ) -> _Candidate:
        file, loop = self.source.name, self._shared_loop(statement)
        span = node_span(self.source, storing.statement)
        text = ", ".join(text_of(value, file) for value in storing.values)
        store = Store(span, dotted_name(storing.container) or "", text, storing.kind)
        further = self._further_back(storing, values)
        texts = [text_of(source, file) for source in further]
        return _Candidate(
            store,
            (self.index, self.loops.index(loop) if loop is not None else len(self.loops)),
            frozenset(dotted_name(node) or "" for node in holders),
            frozenset([store.value, *self._names_in(values)]),
            frozenset([*texts, *self._names_in(further)]),
        )

    def _further_back(self, storing: Storing, values: list[ast.expr]) -> list[ast.expr]:
        """What values were assigned from, and what the functions called there returned."""
        assigned = [
            source
            for name, use in reads(*values)
            for definition in origins(self.names, name, use).definitions
            if definition.statement is not storing.statement
            for source in definition.values
        ]
        calls = [value for value in [*values, *assigned] if isinstance(value, ast.Call)]
        functions = [function for call in calls if (function := callee(self.names, call))]
        returned = [value for function in functions for value in given_back(self.names, function)]
        return [*assigned, *returned]

    def _names_in(self, expressions: list[ast.expr]) -> Iterator[str]:
        """The names that expressions read; a method's name with and without its last part."""
        for name, node in reads(*expressions):
            yield name
            parent = self.names.parents.get(node)
            if isinstance(parent, ast.Call) and parent.func is node:
                yield name.rpartition(".")[0] or name
