"""Everything dies when it dies without whygrad: at once, without the garbage collector's help."""

from __future__ import annotations

import gc
import itertools
from collections.abc import Callable, Iterator

import pytest
from lives import PROGRAMS, Witness

import whygrad


@pytest.fixture(autouse=True)
def _no_garbage_collection() -> Iterator[None]:
    gc.collect()
    gc.disable()
    yield
    gc.enable()


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
def test_all_dies_when_it_dies_without_us(program: Callable[[Witness], None]) -> None:
    program(Witness())  # what torch does only once is done
    bare, watched = Witness(), Witness()
    program(bare)
    with whygrad.watch(quiet=True) as watch:
        program(watched)
    assert watched.book == bare.book
    moments = [set(alive) for _, alive in bare.book]
    assert any(earlier - later for earlier, later in itertools.pairwise(moments))
    assert not [note for note in watch.session.notes if "internal" in note]
