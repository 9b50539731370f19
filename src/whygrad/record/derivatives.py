"""Names of operations as messages about derivatives mention them."""

from __future__ import annotations

import re

_NAMES = re.compile(
    r"derivative for '?(?:aten::)?(?P<derivative>\w+)"
    r"|^(?P<formula>\w+)_backward: "
    r"|\"(?P<kernel>\w+)\" not implemented for"
    r"|(?P<random>\w+) does not have a deterministic implementation"
    r"|(?P<qr>QR decomposition is not|derivative of linalg\.qr)"
)


def named_in(text: str) -> str:
    """The name of an operation, a kernel or a formula in a message; empty if it names none."""
    found = _NAMES.search(text)
    if found is None:
        return ""
    return "linalg_qr" if found["qr"] else found[found.lastgroup or 0]


def squashed(name: str) -> str:
    """A name's letters alone, without what says that it is a derivative."""
    letters = re.sub(r"[^a-z]", "", name.lower())
    return re.sub(r"backward(out)?(cpu|cuda|mps)?$", "", letters).removesuffix("backward")
