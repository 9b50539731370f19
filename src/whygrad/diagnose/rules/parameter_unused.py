"""Parameters that are made, given to the optimizer, and never used."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from whygrad.diagnose import absent_stories, missing, words
from whygrad.diagnose import left as leaving
from whygrad.diagnose.case import Case, is_library
from whygrad.diagnose.missing import Missing, Part
from whygrad.diagnose.replaced import replaced_targets
from whygrad.record.events import ParameterInfo
from whygrad.session import Finding, Fix, Related, Severity
from whygrad.source.attribute_reads import (
    goes_through_all,
    is_conditional,
    is_mentioned,
    reads_of,
)
from whygrad.source.attributes import statement_span, store_of
from whygrad.source.spans import Span, location
from whygrad.source.tree import callee_name

CODE = "parameter-unused"

# Modules of torch's own that consist of others; which of them run is not the user's doing.
_COMPOSED = frozenset(
    """
    Transformer TransformerEncoder TransformerDecoder TransformerEncoderLayer
    TransformerDecoderLayer MultiheadAttention AdaptiveLogSoftmaxWithLoss
    """.split()
)


def diagnose(case: Case) -> Iterator[Finding]:
    yield from absent_stories.unused(case, CODE)
    found = missing.unconnected(case)
    if found is None:
        return
    gone = replaced_targets(case) if found.unused else set()
    unused = [case.parameter(node) for node in found.unused if node not in gone]
    infos = [info for info in unused if info is not None]
    by_line: dict[tuple[Span, Severity], list[Part]] = {}
    registered = [info for info in infos if info.registered]
    for part in missing.parts(registered, case.question.parameters):
        where = _where(case, part)
        if where is not None and found.hidden and not _is_certain(case, [part], where):
            continue
        if where is not None:
            by_line.setdefault((where, _severity(case, found, part, where)), []).append(part)
    for (where, severity), parts in by_line.items():
        yield _finding(case, parts, where, severity)
    for info in infos:
        where = next(iter(leaving.made_at(case, info.node)), None)
        # One that a module made and no longer has was replaced, by what is used instead.
        if info.registered or found.hidden:
            continue
        if where is not None and _makes_tensor(where):
            yield _finding(case, [Part("", [info], False)], where, "warning")


def _makes_tensor(where: Span) -> bool:
    called = callee_name(where) or ""
    return called.endswith("Parameter") or not called.rpartition(".")[2][:1].isupper()


def _where(case: Case, part: Part) -> Span | None:
    """The line that gives the module or parameter its name, else the one that makes it."""
    first = part.members[0]
    made = leaving.made_at(case, first.node)
    if not made:
        return None
    for span in made if part.attribute else ():
        store = store_of([span], part.attribute)
        if store is not None:
            return statement_span(span, store)
    return leaving.maker(made, first.module_types) if part.whole else made[0]


def _severity(case: Case, found: Missing, part: Part, where: Span) -> Severity:
    if _COMPOSED & set(part.above) or _is_librarys(case, found, part):
        return "info"
    if part.is_element and _has_used_siblings(case, found, part):
        return "warning" if goes_through_all(where.file, part.attribute) else "info"
    reads = reads_of(where.file, part.attribute) if part.attribute else []
    # Fetched by a name that is put together, or under a condition: that may change.
    chosen = bool(reads) and all(
        isinstance(read, ast.Call) or is_conditional(where.file, read) for read in reads
    )
    return "info" if chosen or _is_one_of_many(case, found, part) else "warning"


def _is_one_of_many(case: Case, found: Missing, part: Part) -> bool:
    """An `expert_3` of a name that was made up, beside an `expert_5` that was used."""
    alike, name = _numberless(part.path), part.path.rpartition(".")[2]
    if not part.whole or not re.search(r"\d", name) or is_mentioned(_file(case, part), name):
        return False
    return any(
        found.consumers.is_used(info.node)
        for info in case.question.parameters
        if info.root == part.members[0].root
        and info.module != part.path
        and info.module.count(".") >= part.path.count(".")
        and _numberless(".".join(info.module.split(".")[: part.path.count(".") + 1])) == alike
    )


def _file(case: Case, part: Part) -> str:
    made = leaving.made_at(case, part.members[0].node)
    return made[0].file if made else ""


def _numberless(path: str) -> str:
    container, _, last = path.rpartition(".")
    return f"{container}.{re.sub(r'[0-9]+', '#', last)}"


def _is_librarys(case: Case, found: Missing, part: Part) -> bool:
    """Whether a library's own module left a part of itself unused."""
    node = part.members[0].node
    places = case.places.node_spans(node)
    if not places or not is_library(places[0].file):
        return False
    mine = leaving.made_at(case, node)
    return any(
        found.consumers.is_used(info.node)
        for info in case.question.parameters
        if info.root == part.members[0].root and leaving.made_at(case, info.node) == mine
    )


def _has_used_siblings(case: Case, found: Missing, part: Part) -> bool:
    container = part.path.rpartition(".")[0]
    return any(
        found.consumers.is_used(info.node)
        for info in case.question.parameters
        if info.root == part.members[0].root and missing.is_inside(info, container)
    )


def _is_certain(case: Case, parts: list[Part], where: Span) -> bool:
    """Whether nothing in the source could use it later: its name is not read anywhere."""
    return all(part.attribute and not reads_of(where.file, part.attribute) for part in parts)


def _finding(case: Case, parts: list[Part], where: Span, severity: Severity) -> Finding:
    infos = [info for part in parts for info in part.members]
    names = case.names([info.node for info in infos])
    title = _title(parts, infos, names)
    thing, whose = ("it", "its") if len(names) == 1 else ("them", "their")
    return Finding(
        code=CODE,
        severity=severity,
        symptom="silent",
        title=title,
        message=f"{words.sentence(title)} No gradient for {words.listed(names, 8)}.",
        location=location(where),
        label="made here, and no operation has used it",
        related=_surfaced(case, where, len(names)),
        parameters=names,
        why="making a layer only registers its parameters. What takes part in the loss is what "
        "`forward` works with, and nothing that ran worked with this one: it gets no gradient, "
        "and the optimizer passes over it without a word.",
        checked=[
            f"none of the {len(case.graph.recording.events)} recorded operations used {thing} "
            f"where gradients are computed, and after backward() {whose} `.grad` is None."
        ],
        fix=Fix(
            title="use it in the forward pass, or take it out of the model",
            safety="taking it out changes no result, but checkpoints with it no longer fit",
            deliberate="if its turn comes later (another task, another phase), this is fine: "
            "silence this line.",
        ),
        first_step=case.question.step,
        at_end=not _is_certain(case, parts, where),
    )


def _title(parts: list[Part], infos: list[ParameterInfo], names: list[str]) -> str:
    owner = infos[0].owner
    if len(parts) == 1 and parts[0].whole and not parts[0].path:
        return f"`{owner}` is never used: its {len(names)} parameters get no gradient"
    paths = [part.path for part in parts if part.path] or names
    of = leaving.part_of(owner, paths)
    are = "is" if len(paths) == 1 else "are"
    count = f": {len(names)} parameters get no gradient" if len(names) > len(paths) else ""
    return f"{words.listed(paths)}{of} {are} never used{count}"


def _surfaced(case: Case, where: Span, count: int) -> list[Related]:
    surface = case.surface
    if surface is None or surface == where:
        return []
    label = f"leaves {words.count(count, 'parameter')} without a gradient"
    return [Related("surfaced", location(surface), label)]
