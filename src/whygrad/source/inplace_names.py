"""Which of torch's calls write in place, and what does the same out of place.

Missing on purpose: what has no twin (`copy_`, `fill_`, `normal_`) or one that differs
(`eq_` keeps the type that `eq` changes, `bernoulli` reads the values that `bernoulli_` ignores).
"""

from __future__ import annotations

_METHODS = """
    abs acos acosh add addbmm addcdiv addcmul addmm addmv addr asin asinh atan atan2 atanh baddbmm
    ceil clamp clamp_max clamp_min clip cos cosh cumprod cumsum detach digamma div divide erf erfc
    erfinv exp exp2 expm1 floor floor_divide fmod frac hypot index_add index_copy index_fill
    index_put lerp lgamma log log10 log1p log2 logit masked_fill masked_scatter mul
    multiply nan_to_num neg negative pow put reciprocal relu remainder renorm round rsqrt scatter
    scatter_add scatter_reduce sigmoid sign sin sinc sinh sqrt square squeeze sub subtract t tan
    tanh transpose tril triu true_divide trunc unsqueeze xlogy
"""
_FUNCTIONS = """
    abs acos acosh alpha_dropout asin asinh atan atanh ceil celu clamp clamp_max clamp_min clip cos
    cosh dropout elu erf erfc exp exp2 expm1 feature_alpha_dropout feature_dropout floor frac
    hardtanh index_put leaky_relu log log10 log1p log2 logit nan_to_num neg reciprocal relu round
    rrelu rsqrt selu sigmoid sin sinc sinh sqrt square tan tanh threshold trunc xlogy
"""
INPLACE_METHODS = frozenset(f"{name}_" for name in _METHODS.split())
INPLACE_FUNCTIONS = frozenset(f"{name}_" for name in _FUNCTIONS.split())

# Where `inplace` stands among the positional arguments.
FUNCTIONAL_POSITION = {
    **dict.fromkeys("relu relu6 selu silu mish hardswish hardsigmoid".split(), 1),
    **dict.fromkeys("elu celu leaky_relu".split(), 2),
    **dict.fromkeys("dropout dropout1d dropout2d dropout3d alpha_dropout".split(), 3),
    **dict.fromkeys("feature_alpha_dropout hardtanh threshold".split(), 3),
    "rrelu": 4,
}
LAYER_POSITION = {
    **dict.fromkeys("ReLU ReLU6 SELU SiLU Mish Hardswish Hardsigmoid".split(), 0),
    **dict.fromkeys("ELU CELU LeakyReLU Dropout Dropout1d Dropout2d Dropout3d".split(), 1),
    **dict.fromkeys("AlphaDropout FeatureAlphaDropout".split(), 1),
    **dict.fromkeys("Hardtanh RReLU Threshold".split(), 2),
}

# What these give shares memory with what they are asked of.
VIEW_ATTRIBUTES = frozenset("data T H mT mH real imag".split())
VIEW_METHODS = frozenset(
    """
    as_strided chunk contiguous detach diagonal expand expand_as flatten movedim narrow permute
    reshape reshape_as select split squeeze swapaxes swapdims t to transpose unbind unflatten
    unfold unsqueeze view view_as
    """.split()
)
