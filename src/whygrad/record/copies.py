"""Where in an object a deep copy has got to when it fails: which attribute of which class."""

from __future__ import annotations

import copy
from types import FrameType
from typing import Any

_COPY = copy.deepcopy.__code__.co_filename
_REGISTERED = ("_modules", "_parameters", "_buffers")
# What the functions of torch.nn.utils put beside the tensor that they compute anew each time.
_SIBLINGS = ("_g", "_v", "_orig")


def where_in(error: BaseException) -> dict[str, str]:
    """The way from the copied object to the tensor that cannot be copied, as plain texts.

    `kept_as` is all of it ("encoder.cache['last']"), `attribute` its last attribute, `keeper` the
    class that has it, `computed_from` the parameters that a hook computes it from.
    """
    trace, walk = error.__traceback__, _Walk()
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == _COPY:
            walk.enter(trace.tb_frame)
        trace = trace.tb_next
    return walk.found()


class _Walk:
    def __init__(self) -> None:
        self.way = ""
        self.attribute = ""
        self.keeper: Any = None
        self._expects_attribute = False

    def enter(self, frame: FrameType) -> None:
        values = frame.f_locals
        match frame.f_code.co_name:
            case "_reconstruct" if values.get("state") is not None:
                self.keeper, self._expects_attribute = values.get("x"), True
            case "_deepcopy_dict":
                self._go_to(values.get("key"))
            case "_deepcopy_list" | "_deepcopy_tuple":
                self._expects_attribute = False
                items, item = values.get("x") or (), values.get("a")
                place = next((n for n, held in enumerate(items) if held is item), None)
                self.way += f"[{place}]" if place is not None else "[...]"

    def _go_to(self, key: Any) -> None:
        if not self._expects_attribute:
            self.way += f"[{key!r}]" if isinstance(key, (str, int)) else "[...]"
        elif key not in _REGISTERED:
            self.attribute = str(key)
            self.way += f".{key}"
            self._expects_attribute = False

    def found(self) -> dict[str, str]:
        if not self.way:
            return {}
        texts = {"kept_as": self.way.removeprefix(".")}
        if self.attribute and self.keeper is not None:
            texts |= {"attribute": self.attribute, "keeper": type(self.keeper).__name__}
            known = getattr(self.keeper, "_parameters", None) or {}
            siblings = [name for end in _SIBLINGS if (name := self.attribute + end) in known]
            texts |= {"computed_from": " ".join(siblings)} if siblings else {}
        return texts
