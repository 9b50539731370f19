"""What to say of operations without a derivative. Data: operation -> (what it gives, instead)."""

from __future__ import annotations

_CASTS = "a cast to whole numbers or booleans"
_COMPARISON = "a comparison gives True or False"
_SOFT = "use a smooth stand-in, such as torch.sigmoid of the difference"
_KEEP_FLOAT = "keep the values floating point as long as gradients should pass"

_KNOWN: dict[str, tuple[str, str]] = {
    "argmax": ("it gives positions", "use torch.softmax (or gumbel_softmax) and a weighted sum"),
    "argmin": ("it gives positions", "use torch.softmax of the negative and a weighted sum"),
    "argsort": ("it gives positions", "use the sorted values, which do carry gradient"),
    "topk": ("its indices are positions", "use its values, which do carry gradient"),
    "sort": ("its indices are positions", "use its values, which do carry gradient"),
    "max": ("its indices are positions", "use its values, which do carry gradient"),
    "min": ("its indices are positions", "use its values, which do carry gradient"),
    "nonzero": ("it gives positions", "weight by a smooth mask instead of selecting"),
    "multinomial": ("a random draw gives positions", "use gumbel_softmax, or a log_prob loss"),
    "one_hot": ("it reads positions", "use torch.softmax, whose output is a smooth one-hot"),
    "histc": ("it counts", "use a kernel density or soft bins"),
    "bincount": ("it counts", "use soft counts: sums of probabilities"),
    "linspace": ("it reads its end points as plain numbers", "scale torch.linspace(0, 1, n)"),
    "logspace": ("it reads its end points as plain numbers", "scale torch.linspace and torch.exp"),
    "normal": ("a random draw has no derivative", "use mean + std * torch.randn_like(mean)"),
    "bernoulli": ("a random draw has no derivative", "use a relaxed Bernoulli (rsample)"),
    "poisson": ("a random draw has no derivative", "use a log_prob loss"),
    "searchsorted": ("it gives positions", "interpolate between the neighbours"),
    "bucketize": ("it gives positions", "interpolate between the neighbours"),
    "unique": ("it gives distinct values", "work on the values themselves"),
}
_COMPARISONS = frozenset("eq ne lt le gt ge isclose equal greater less".split())
_CAST_OPS = frozenset("to type int long short bool byte char type_as view".split())


def consequence(op: str) -> tuple[str, str]:
    """(what the operation gives, what to use instead)."""
    bare = op.strip("_")
    if bare in _KNOWN:
        return _KNOWN[bare]
    if bare in _COMPARISONS or bare.startswith(("logical_", "bitwise_", "is")):
        return _COMPARISON, _SOFT
    if bare in _CAST_OPS:
        return f"{_CASTS} has no derivative", _KEEP_FLOAT
    return "its output cannot carry gradient", "use a differentiable operation here"
