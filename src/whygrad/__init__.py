"""whygrad: why did my gradient fail, and which line do I change?"""

from whygrad._version import __version__

__all__ = ["__version__"]
