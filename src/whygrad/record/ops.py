"""Which torch functions mean what to the recorder. Tables are data; see `role_of`."""

from __future__ import annotations

from enum import IntEnum
from typing import Any


class Role(IntEnum):
    """What the recorder does with a call."""

    IGNORE = 0  # tells facts about a tensor; no values flow
    FLOW = 1  # values flow from inputs to outputs
    EXIT = 2  # values leave torch for Python or numpy
    GRAD_SWITCH = 3
    FLAG = 4  # sets requires_grad
    BACKWARD = 5
    GRAD = 6  # torch.autograd.grad
    GRADIENT = 7  # reads a tensor's .grad
    DATA_SET = 8  # assigns to a tensor's .data
    GRADIENT_SET = 9  # assigns to a tensor's .grad
    HOOK = 10  # gives autograd some of the program's own code to run


# Collectives: name -> the places of the tensors that it writes and of those that it reads.
COLLECTIVES: dict[str, tuple[int, int]] = {
    "all_reduce": (0, 0),
    "broadcast": (0, 0),
    "reduce": (0, 0),
    "all_gather": (0, 1),
    "all_gather_into_tensor": (0, 1),
    "reduce_scatter": (0, 1),
    "reduce_scatter_tensor": (0, 1),
}

COMPILED = "torch.compile"  # what came out of a compiled region, whose calls are not seen

EXITS = frozenset(
    "item tolist numpy __float__ __int__ __index__ __complex__ __array__ __dlpack__".split()
)

# Looking at a tensor: no values flow from these into later tensors.
IGNORED = frozenset(
    """
    size dim ndimension numel nelement stride storage_offset data_ptr untyped_storage storage
    is_contiguous is_complex is_floating_point is_signed is_inference is_pinned is_shared
    is_same_size is_set_to is_conj is_neg is_coalesced is_nonzero is_distributed is_tensor
    is_storage element_size get_device has_names
    _version _is_view _nnz dense_dim sparse_dim _is_all_true _is_zerotensor
    retain_grad
    __len__ __repr__ __str__ __format__ __hash__ __bool__ __contains__ __dir__ __iter__
    __reduce_ex__ __reduce__ __setstate__ __dlpack_device__ __array_priority__
    _record_function_enter_new _record_function_exit _RecordFunction result_type can_cast
    promote_types broadcast_shapes equal allclose is_grad_enabled finfo iinfo
    set_printoptions manual_seed get_default_dtype set_default_dtype
    share_memory_ _typed_storage __cuda_array_interface__ names refine_names module_load
    _autocast_to_full_precision is_autocast_enabled set_autocast_enabled get_autocast_dtype
    """.split()
)

# Properties whose value is a tensor with the same numbers; all others are looks.
VALUE_PROPERTIES = frozenset(["data", "T", "mT", "H", "mH", "real", "imag", "_base"])

DATA_WRITE = "data="  # an assignment to .data, or a write through it
DETACHING = frozenset(["detach", "detach_", "data", "detach_copy", DATA_WRITE])

# Tensors made from Python or numpy values: the return of what left torch.
REBUILDING = frozenset(
    """
    tensor as_tensor asarray scalar_tensor from_numpy from_dlpack frombuffer new_tensor new_full
    full full_like fill_ fill Tensor new sparse_coo_tensor Variable Parameter new_empty_strided
    """.split()
)

# Outputs of these never require grad even where their numbers are floating point.
NEVER_DIFFERENTIABLE = frozenset(
    """
    histc histogram bincount linspace logspace arange one_hot multinomial normal poisson binomial
    rand_like randn_like empty_like zeros_like ones_like new_zeros new_ones new_empty randint_like
    """.split()
)

# Only shape, dtype and device of the argument count: no value flows at all.
SHAPE_ONLY = frozenset(
    """
    rand_like randn_like empty_like zeros_like ones_like new_zeros new_ones new_empty randint_like
    full_like new_full zero_ .grad
    """.split()
)

# Only the first argument's values flow: of the second one, shape or dtype is taken.
# Copying takes along a table of what was copied before.
LIKE_ANOTHER = frozenset(["type_as", "expand_as", "view_as", "reshape_as", "to", "__deepcopy__"])

GRADIENT = ".grad"  # the property; `grad` is torch.autograd.grad

# What gives autograd some of the program's own code to run.
HOOKS = frozenset(["register_hook", "register_post_accumulate_grad_hook"])

# Functions that may write to an argument although their name does not say so.
HIDDEN_WRITERS = frozenset(["embedding", "embedding_bag", "batch_norm"])

IN_PLACE_DUNDERS = frozenset(
    """
    __iadd__ __isub__ __imul__ __itruediv__ __ifloordiv__ __imod__ __ipow__ __iand__ __ior__
    __ixor__ __ilshift__ __irshift__ __imatmul__ __setitem__
    """.split()
)


_SETTERS = {
    "requires_grad=": Role.FLAG,
    DATA_WRITE: Role.DATA_SET,
    "grad=": Role.GRADIENT_SET,
}


def op_name(func: Any) -> str:
    """A function's short name: `mul`, `data`, `requires_grad=`."""
    name: str = getattr(func, "__name__", "") or type(func).__name__
    if name in ("__get__", "__set__", "__delete__"):
        attribute = getattr(getattr(func, "__self__", None), "__name__", "?")
        return attribute if name == "__get__" else f"{attribute}="
    return name


def display_name(op: str) -> str:
    """The name as a person would say it: `mul` for `__rmul__`, `add` for `add_`'s dunder form."""
    if op.startswith("__") and op.endswith("__"):
        bare = op.strip("_")
        if bare in ("float", "int", "index", "complex", "array", "getitem", "setitem"):
            return {"getitem": "index", "setitem": "index write"}.get(bare, f"{bare}()")
        return bare[1:] if bare[:1] in "ri" and len(bare) > 3 and bare not in ("invert",) else bare
    return op


def is_write(name: str) -> bool:
    """Whether an operation says by its name that it works in place."""
    return name in IN_PLACE_DUNDERS or (name.endswith("_") and not name.endswith("__"))


def role_of(func: Any) -> tuple[Role, str, bool]:
    """(role, name, whether it writes in place) of a torch function."""
    name = op_name(func)
    method = getattr(func, "__name__", "")
    if method == "__get__":
        if name == "grad":
            return Role.GRADIENT, GRADIENT, False
        return (Role.FLOW if name in VALUE_PROPERTIES else Role.IGNORE), name, False
    if method in ("__set__", "__delete__"):
        return _SETTERS.get(name, Role.IGNORE), name, False
    if name == "requires_grad_":
        return Role.FLAG, name, False
    if name == "_set_grad_enabled":
        return Role.GRAD_SWITCH, name, False
    if name == "backward":
        return Role.BACKWARD, name, False
    if name == "grad" and getattr(func, "__module__", "") == "torch.autograd":
        return Role.GRAD, name, False
    if name in EXITS:
        return Role.EXIT, name, False
    if name in HOOKS:
        return Role.HOOK, name, False
    if name in IGNORED:
        return Role.IGNORE, name, False
    return Role.FLOW, name, is_write(name)
