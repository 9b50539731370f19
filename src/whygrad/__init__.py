"""whygrad: why did my gradient fail, and which line do I change?"""

from typing import TYPE_CHECKING, Any

from whygrad._version import __version__

if TYPE_CHECKING:
    from whygrad.api import watch, why

__all__ = ["__version__", "watch", "why"]


def __getattr__(name: str) -> Any:
    # Torch takes seconds to import: `import whygrad` alone must not.
    if name in ("watch", "why"):
        from whygrad import api

        return getattr(api, name)
    raise AttributeError(f"module 'whygrad' has no attribute {name!r}")
