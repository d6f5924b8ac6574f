"""The operators that are checked, with attributes and shapes, and the factors that each should have."""
from __future__ import annotations

from typing import List

from tests.rules import vision_cases
from tests.rules.cutting import Case, Operand, index, length, positive, real
from tests.rules.numeric_cases import FAMILIES as NUMERIC_FAMILIES


def dense() -> List[Case]:
    op = "FullyConnected"
    return [
        Case(op, {"num_hidden": 5}, [real(4, 6), real(5, 6), real(5)], "n m k+"),
        Case(op, {"num_hidden": 5, "no_bias": "True"}, [real(4, 6), real(5, 6)], "n m k+"),
        Case(op, {"num_hidden": 5, "no_bias": "1", "flatten": "1"}, [real(4, 6), real(5, 6)], "n m k+"),
        Case(op, {"num_hidden": 3}, [real(4, 6, 2, 3), real(3, 36), real(3)], "n m k+"),
        Case(op, {"num_hidden": 3}, [real(4, 1, 2, 3), real(3, 6), real(3)], "n m"),
        Case(op, {"num_hidden": 3, "flatten": False}, [real(4, 5, 6), real(3, 6), real(3)], "n d1 m k+"),
        Case(op, {"num_hidden": 3, "flatten": False}, [real(4, 5, 2, 6), real(3, 6), real(3)], "n d1 d2 m k+"),
        Case(op, {"num_hidden": 3, "flatten": "0", "no_bias": True}, [real(4, 6), real(3, 6)], "n m k+"),
    ]


def convolution() -> List[Case]:
    op = "Convolution"
    square = {"kernel": "(3, 3)"}
    return [
        Case(op, {**square, "num_filter": 5, "pad": "(1, 1)", "layout": "NCHW"},
             [real(4, 6, 7, 5), real(5, 6, 3, 3), real(5)], "n h w m c+"),
        Case(op, {**square, "num_filter": 5, "stride": "(2, 1)", "dilate": "(1, 2)", "no_bias": "True",
                  "layout": "None"}, [real(3, 6, 8, 9), real(5, 6, 3, 3)], "n h w m c+"),
        Case(op, {"kernel": "(1, 1)", "num_filter": 5}, [real(4, 6, 3, 5), real(5, 6, 1, 1), real(5)], "n h w m c+"),
        Case(op, {"kernel": "(1, 1)", "stride": "(2, 2)", "num_filter": 5},
             [real(4, 6, 3, 5), real(5, 6, 1, 1), real(5)], "n h w m c+"),
        Case(op, {"kernel": "[1, 1]", "pad": "[1, 0]", "num_filter": 5},
             [real(4, 6, 3, 5), real(5, 6, 1, 1), real(5)], "n w m c+"),
        Case(op, {**square, "num_filter": 6, "num_group": 3}, [real(2, 9, 5, 5), real(6, 3, 3, 3), real(6)], "n h w g"),
        Case(op, {**square, "num_filter": 8, "num_group": 4, "no_bias": True},
             [real(2, 4, 5, 5), real(8, 1, 3, 3)], "n h w g"),
        Case(op, {**square, "num_filter": 5, "num_group": 5, "no_bias": True},
             [real(2, 5, 5, 5), real(5, 1, 3, 3)], "n h w g"),
        Case(op, {"kernel": "(3,)", "num_filter": 4}, [real(3, 2, 9), real(4, 2, 3), real(4)], "n w m c+"),
        # Depthwise with several filters for each channel, in one, two and three dims.
        Case(op, {"kernel": "(3,)", "num_filter": 12, "num_group": 4, "pad": "(1,)"},
             [real(2, 4, 6), real(12, 1, 3), real(12)], "n w g"),
        Case(op, {**square, "num_filter": 12, "num_group": 6, "stride": "(2, 2)"},
             [real(2, 6, 6, 5), real(12, 1, 3, 3), real(12)], "n h w g"),
        Case(op, {"kernel": "(2, 3, 2)", "num_filter": 8, "num_group": 4},
             [real(2, 4, 3, 4, 3), real(8, 1, 2, 3, 2), real(8)], "n d h w g"),
        Case(op, {"kernel": "(2, 2, 2)", "num_filter": 6, "num_group": 3, "no_bias": True},
             [real(2, 6, 3, 4, 3), real(6, 2, 2, 2, 2)], "n d h w g"),
        Case(op, {"kernel": "(1,)", "num_filter": 6, "num_group": 3}, [real(2, 6, 5), real(6, 2, 1), real(6)],
             "n w g"),
        Case(op, {"kernel": "(2, 3, 2)", "num_filter": 4, "layout": "NCDHW"},
             [real(3, 2, 4, 5, 3), real(4, 2, 2, 3, 2), real(4)], "n d h w m c+"),
        Case("Deconvolution", {"kernel": "(3, 3)", "num_filter": 5}, [real(4, 6, 4, 3), real(6, 5, 3, 3)], "n m c+"),
        Case("Deconvolution", {"kernel": "(3, 3)", "num_filter": 5, "no_bias": "False", "stride": "(2, 2)",
                               "pad": "(1, 1)", "adj": "(1, 1)"},
             [real(4, 6, 4, 3), real(6, 5, 3, 3), real(5)], "n m c+"),
        Case("Deconvolution", {"kernel": "(3,)", "num_filter": 5}, [real(4, 6, 7), real(6, 5, 3)], "n m c+"),
        Case("Deconvolution", {"kernel": "(2, 2)", "num_filter": 6, "num_group": 3, "no_bias": "False"},
             [real(4, 6, 4, 3), real(6, 2, 2, 2), real(6)], "n g"),
        Case("Deconvolution", {"kernel": "(2, 2)", "num_filter": 2, "target_shape": "(8, 6)", "stride": "(2, 2)"},
             [real(4, 6, 4, 3), real(6, 2, 2, 2)], "n m c+"),
    ]


def pooling() -> List[Case]:
    op = "Pooling"
    image = [real(4, 3, 6, 5)]
    cases = [Case(op, {"kernel": "(2, 2)", "stride": "(2, 2)", "pool_type": t}, image, "n c h w") for t in
             ("max", "avg", "sum")]
    return cases + [
        Case(op, {"kernel": "(3, 3)", "pad": "(1, 1)", "pool_type": "avg", "count_include_pad": "False",
                  "pooling_convention": "full", "layout": "NCHW", "stride": "(2, 2)"}, image, "n c"),
        Case(op, {"kernel": "(2, 3)", "pad": "(0, 1)", "pool_type": "avg", "pooling_convention": "full",
                  "stride": "(2, 2)"}, image, "n c h w"),
        Case(op, {"kernel": "(3, 3)", "pool_type": "max", "pooling_convention": "full", "stride": "(2, 2)"},
             [real(4, 3, 6, 8)], "n c h w"),
        Case(op, {"kernel": "(5, 2)", "pad": "(0, 1)", "pool_type": "sum", "pooling_convention": "full",
                  "stride": "(1, 3)"}, [real(2, 3, 9, 8)], "n c h"),
        Case(op, {"kernel": "(2, 2)", "pool_type": "lp", "p_value": 2}, [positive(4, 3, 6, 5)], "n c"),
        Case(op, {"kernel": "(2,)"}, [real(4, 3, 6)], "n c w"),
        Case(op, {"kernel": "(2, 2, 2)", "pool_type": "avg"}, [real(4, 3, 4, 3, 2)], "n c d h"),
        Case(op, {"global_pool": "True", "kernel": "(1, 1)", "pool_type": "avg", "pooling_convention": "full",
                  "pad": "(0, 0)", "stride": "(1, 1)", "layout": "NCHW"}, image, "n c h+ w+"),
        Case(op, {"global_pool": 1, "pool_type": "sum"}, image, "n c h+ w+"),
        Case(op, {"global_pool": 1, "pool_type": "avg"}, [real(4, 3, 6)], "n c w+"),
        Case(op, {"global_pool": 1, "pool_type": "avg", "kernel": "(2, 2, 2)"}, [real(2, 3, 2, 3, 2)],
             "n c d+ h+ w+"),
        Case(op, {"global_pool": 1, "pool_type": "max"}, image, "n c"),
        Case("_contrib_AdaptiveAvgPooling2D", {"output_size": "(2, 3)"}, image, "n c"),
        Case("UpSampling", {"scale": 2, "sample_type": "nearest", "num_args": 1}, image, "n c"),
        Case("UpSampling", {"scale": 2, "sample_type": "nearest", "num_args": 2}, [real(4, 3, 2, 3), real(4, 2, 4, 6)],
             "n"),
        Case("UpSampling", {"scale": 2, "sample_type": "nearest", "num_args": 2, "multi_input_mode": "sum"},
             [real(4, 3, 2, 3), real(4, 3, 2, 3)], "n c"),
    ]


def normalization() -> List[Case]:
    def batch_norm(shape, channels, attrs, factors, training=True, op="BatchNorm"):
        operands = [real(*shape), positive(channels), real(channels), real(channels), positive(channels)]
        return Case(op, attrs, operands, factors, training)

    image = (4, 6, 3, 5)
    channels = [positive(6), real(6)]
    sums = Operand((2, 6), lambda rng, s: rng.uniform([[-1], [1]], [[1], [2]], size=s), dtype="float64")
    return [
        batch_norm(image, 6, {"axis": 1, "fix_gamma": "False"}, "c"),
        batch_norm(image, 6, {"fix_gamma": "True"}, "c"),
        batch_norm((4, 6), 6, {"fix_gamma": "False"}, "c"),
        batch_norm((4, 3, 6), 6, {"axis": -1, "fix_gamma": "False"}, "c"),
        batch_norm((5, 3, 4), 5, {"axis": 0, "fix_gamma": "False"}, "c"),
        batch_norm(image, 6, {"use_global_stats": "True", "fix_gamma": "False"}, "n c h w"),
        batch_norm(image, 6, {"fix_gamma": "False"}, "n c h w", training=False),
        batch_norm(image, 6, {"output_mean_var": "True", "fix_gamma": "False"}, "c"),
        batch_norm(image, 6, {"output_mean_var": "True"}, "c", training=False),
        batch_norm(image, 6, {"fix_gamma": "False"}, "c", op="_contrib_BatchNormWithReLU"),
        Case("_soybean_mx_channel_sums", {"axis": 1, "bins": 1}, [real(*image)], "n+ c h+ w+"),
        Case("_soybean_mx_channel_sums", {"axis": 2, "bins": 1}, [real(4, 3, 6)], "n+ w+ c"),
        Case("_soybean_mx_batch_norm_factors", {"count": 6, "eps": 0.01, "fix_gamma": "False"}, [sums, *channels], "c"),
        Case("_soybean_mx_batch_norm_factors", {"count": 6, "eps": 0.01, "fix_gamma": "True"}, [sums, *channels], "c"),
        Case("LayerNorm", {}, [real(4, 3, 6), *channels], "n d1 d2*"),
        Case("LayerNorm", {"axis": 1, "eps": 1e-3}, [real(4, 6, 3), *channels], "n d1* d2"),
        Case("LayerNorm", {"axis": -1, "output_mean_var": "True"}, [real(4, 6), *channels], "n"),
        Case("InstanceNorm", {}, [real(*image), *channels], "n c h* w*"),
        Case("InstanceNorm", {}, [real(4, 6, 9), *channels], "n c w*"),
        Case("GroupNorm", {"num_groups": 3}, [real(*image), positive(3), real(3)], "n g h* w*"),
        Case("GroupNorm", {"num_groups": 6}, [real(*image), positive(6), real(6)], "n g h* w*"),
        Case("GroupNorm", {}, [real(*image), positive(1), real(1)], "n c* h* w*"),
        Case("GroupNorm", {"num_groups": 3, "output_mean_var": 1}, [real(*image), positive(3), real(3)], "n g"),
        Case("L2Normalization", {}, [real(*image)], "n c* h* w*"),
        Case("L2Normalization", {"mode": "channel"}, [real(*image)], "n c* h w"),
        Case("L2Normalization", {"mode": "spatial"}, [real(*image)], "n c h* w*"),
        Case("LRN", {"nsize": 3}, [real(*image)], "n h w"),
    ]


def elementwise() -> List[Case]:
    x, one, shape = real(4, 3, 2), positive(4, 3, 2), (4, 3, 2)
    integers = Operand(shape, lambda rng, s: rng.randint(1, 9, size=s), gradient=False, dtype="int32")
    plain = (
        "relu sigmoid softsign hard_sigmoid erf erfinv _copy BlockGrad zeros_like ones_like abs arccos arccosh arcsin "
        "arcsinh arctan arctanh cbrt ceil cos cosh degrees exp expm1 fix floor gamma gammaln log log10 log1p log2 "
        "logical_not negative radians rcbrt reciprocal rint round rsqrt sign sin sinh sqrt square tan tanh trunc "
        "_contrib_round_ste _contrib_sign_ste"
    ).split()
    numpy_plain = (
        "_npx_relu _npx_sigmoid _np_copy _npi_absolute _npi_arccos _npi_arccosh _npi_arcsin _npi_arcsinh _npi_arctan "
        "_npi_arctanh _npi_cbrt _npi_ceil _npi_cos _npi_cosh _npi_degrees _npi_exp _npi_expm1 _npi_fix _npi_floor "
        "_npi_isfinite _npi_isinf _npi_isnan _npi_isneginf _npi_isposinf _npi_log _npi_log10 _npi_log1p _npi_log2 "
        "_npi_logical_not _npi_negative _npi_radians _npi_reciprocal _npi_rint _npi_sign _npi_sin _npi_sinh _npi_sqrt "
        "_npi_square _npi_tan _npi_tanh _npi_trunc _npi_around _npi_nan_to_num"
    ).split()
    scalar = (
        "_plus_scalar _minus_scalar _rminus_scalar _mul_scalar _div_scalar _rdiv_scalar _mod_scalar _rmod_scalar "
        "_power_scalar _rpower_scalar _maximum_scalar _minimum_scalar _hypot_scalar _equal_scalar _not_equal_scalar "
        "_greater_scalar _greater_equal_scalar _lesser_scalar _lesser_equal_scalar _logical_and_scalar "
        "_logical_or_scalar _logical_xor_scalar smooth_l1 _contrib_gradientmultiplier"
    ).split()
    numpy_scalar = (
        "_npi_add_scalar _npi_subtract_scalar _npi_rsubtract_scalar _npi_multiply_scalar _npi_true_divide_scalar "
        "_npi_rtrue_divide_scalar _npi_mod_scalar _npi_rmod_scalar _npi_power_scalar _npi_rpower_scalar "
        "_npi_arctan2_scalar _npi_rarctan2_scalar _npi_ldexp_scalar _npi_rldexp_scalar "
        "_npi_equal_scalar _npi_not_equal_scalar _npi_greater_scalar _npi_greater_equal_scalar "
        "_npi_less_scalar _npi_less_equal_scalar"
    ).split()
    binary = (
        "elemwise_add elemwise_sub elemwise_mul elemwise_div _maximum _minimum _mod _power _hypot _equal _not_equal "
        "_greater _greater_equal _lesser _lesser_equal _logical_and _logical_or _logical_xor"
    ).split()
    cases = [Case(op, {}, [one]) for op in plain]
    cases += [Case(op, {}, [one], numpy=True) for op in numpy_plain]
    cases += [Case(op, {"scalar": 0.5}, [one]) for op in scalar]
    cases += [Case(op, {"scalar": 0.5, "is_int": "False"}, [one], numpy=True) for op in numpy_scalar]
    # MXNet cannot run the gradient of copysign with a number.
    cases += [Case(op, {"scalar": 0.5, "is_int": "False"}, [one], training=False, numpy=True) for op in
              ("_npi_copysign_scalar", "_npi_rcopysign_scalar")]
    cases += [Case(op, {"scalar": 6, "is_int": "True"}, [integers], numpy=True) for op in
              ("_npi_lcm_scalar", "_npi_bitwise_and_scalar", "_npi_bitwise_or_scalar", "_npi_bitwise_xor_scalar")]
    cases += [Case(op, {}, [one, one]) for op in binary]
    cases += [Case("Activation", {"act_type": t}, [x]) for t in ("relu", "sigmoid", "softrelu", "softsign", "tanh")]
    return cases + [
        Case("_npi_bitwise_not", {}, [integers], numpy=True),
        Case("Cast", {"dtype": "float64"}, [x]),
        Case("amp_cast", {"dtype": "float16"}, [x]),
        Case("amp_multicast", {"num_outputs": 2}, [x, x]),
        Case("clip", {"a_min": -0.5, "a_max": 0.5}, [x]),
        Case("_contrib_quadratic", {"a": 1, "b": 2, "c": 3}, [x]),
        Case("_npi_full_like", {"fill_value": 3}, [x], numpy=True),
        Case("_npi_where_scalar2", {"x": 1, "y": 2}, [index(2, *shape)], numpy=True),
        Case("_identity_with_attr_like_rhs", {}, [x, Operand(shape, x.draw, gradient=False)]),
        Case("add_n", {"num_args": 3}, [x, x, x]),
        Case("relu", {}, [real(7)]),
        Case("_npi_exp", {}, [real()], numpy=True),
        Case("_contrib_div_sqrt_dim", {}, [x], "n d1"),
        Case("_scatter_elemwise_div", {}, [x, one]),
        Case("_scatter_minus_scalar", {"scalar": 2}, [x]),
        Case("_scatter_plus_scalar", {"scalar": 2}, [x]),
        Case("_grad_add", {}, [x, x], training=False),
        Case("cast_storage", {"stype": "default"}, [x]),
    ]


def dropout() -> List[Case]:
    x = real(4, 3, 2)
    return [
        Case("Dropout", {"p": 0.5, "axes": "()"}, [x], exact=False),
        Case("Dropout", {"p": 0, "axes": "()"}, [x]),
        Case("Dropout", {"p": 0.5, "axes": "(1,)"}, [x], "n d2", exact=False),
        Case("Dropout", {"p": 0.5, "axes": "(0, 2)"}, [x], "d1", exact=False),
        Case("Dropout", {"p": 0.5, "axes": "(0, 2)"}, [x], training=False),
        Case("Dropout", {"p": 0.5, "mode": "always"}, [x], training=False, exact=False),
        *[Case("LeakyReLU", {"act_type": t, "slope": 0.1}, [x]) for t in ("leaky", "elu", "selu", "gelu")],
        Case("LeakyReLU", {"act_type": "prelu"}, [real(4, 3, 5, 2), real(3)]),
        Case("LeakyReLU", {"act_type": "prelu"}, [real(4, 3, 5, 2), real(1)]),
        Case("LeakyReLU", {"act_type": "prelu"}, [real(4, 6), real(6)]),
        Case("LeakyReLU", {"act_type": "prelu"}, [real(4, 1, 3), real(1)]),
    ]


def broadcast() -> List[Case]:
    legacy = ("add sub mul div mod power maximum minimum hypot equal not_equal greater greater_equal lesser "
              "lesser_equal logical_and logical_or logical_xor").split()
    numpy_ops = ("add subtract multiply true_divide mod power arctan2 hypot copysign ldexp equal not_equal greater "
                 "greater_equal less less_equal").split()
    a, b = positive(4, 1, 6), positive(1, 3, 6)
    integers = [Operand(s, lambda rng, s: rng.randint(1, 9, size=s), gradient=False, dtype="int32")
                for s in ((4, 1, 6), (3, 6))]
    cases = [Case(f"broadcast_{op}", {}, [a, b]) for op in legacy]
    cases += [Case(f"_npi_{op}", {}, [a, positive(3, 6)], numpy=True) for op in numpy_ops]
    cases += [Case(f"_npi_{op}", {}, integers, numpy=True) for op in
              ("lcm", "bitwise_and", "bitwise_or", "bitwise_xor")]
    return cases + [
        Case("broadcast_add", {}, [real(4, 3), real(4, 3)]),
        Case("_npi_add", {}, [real(4, 3), real()], numpy=True),
        Case("_npi_add", {}, [real(), real()], numpy=True),
        Case("_npi_multiply", {}, [real(3), real(2, 1, 4, 3)], numpy=True),
        Case("_npi_where", {}, [index(2, 4, 1), real(4, 6), real(6)], numpy=True),
        Case("_npi_where_lscalar", {"scalar": 2}, [index(2, 4, 1), real(4, 6)], numpy=True),
        Case("_npi_where_rscalar", {"scalar": 2}, [index(2, 4, 6), real(4, 6)], numpy=True),
        Case("where", {}, [index(2, 4, 6), real(4, 6), real(4, 6)]),
        Case("where", {}, [index(2, 4), real(4, 6), real(4, 6)]),
        Case("broadcast_to", {"shape": "(4, 3, 6)"}, [real(4, 1, 6)]),
        Case("broadcast_to", {"shape": "(0, 3, 0)"}, [real(4, 1, 6)]),
        Case("_npi_broadcast_to", {"shape": "(2, 4, 6)"}, [real(4, 1)], numpy=True),
        Case("broadcast_axis", {"axis": "(1,)", "size": "(3,)"}, [real(4, 1, 6)]),
        Case("broadcast_axis", {"axis": 1, "size": 3}, [real(4, 1, 6)]),
        Case("broadcast_axis", {"axis": "(1, 2)", "size": "(3, 2)"}, [real(4, 1, 1, 5)], "n d3"),
        Case("_contrib_arange_like", {"axis": 1}, [real(4, 3, 6)], "n d1 d2"),
        Case("_contrib_arange_like", {"axis": -1, "start": 2, "step": 0.5}, [real(4, 3)], "n d1"),
        Case("_arange", {"start": 1, "stop": 7}, [], "n"),
        Case("_arange", {"start": 6, "stop": "None", "ctx": "cpu(1)"}, [], "n"),
        Case("_arange", {"start": 9, "stop": 2, "step": -2, "dtype": "int32"}, [], "n"),
        Case("_arange", {"start": 1, "stop": 4, "step": 0.5}, [], ""),
        Case("_arange", {"start": 1, "stop": 4, "repeat": 2}, [], ""),
        Case("_eye", {"N": 4}, [], "n"),
        Case("_eye", {"N": 5, "M": 3, "k": -1}, [], "n"),
        Case("broadcast_like", {}, [real(4, 1, 6), real(4, 3, 6)]),
        Case("broadcast_like", {"lhs_axes": "(1,)", "rhs_axes": "(0,)"}, [real(4, 1, 6), real(3, 2)], "n d1 d2 l1"),
        Case("broadcast_like", {"lhs_axes": "(0, -1)", "rhs_axes": "(2, 1)"}, [real(1, 3, 1), real(5, 4, 6)],
             "n d1 d2 l0"),
        Case("_zeros", {"shape": "(4, 3)"}, []),
        Case("_ones", {"shape": "(4, 3)", "ctx": ""}, []),
        Case("_full", {"shape": "(4, 3)", "value": 2}, []),
        Case("_npi_zeros", {"shape": "(4, 3)"}, [], numpy=True),
        Case("_npi_ones", {"shape": "(4, 3)", "ctx": "cpu(1)"}, [], numpy=True),
        Case("_zeros_without_dtype", {"shape": "(4, 3)", "dtype": 0}, []),
        *[Case(f"_npi_{op}", {"M": 5}, [], "", numpy=True) for op in ("blackman", "hamming", "hanning")],
        Case("_npi_arange", {"start": 1, "stop": 7, "step": 2}, [], "n", numpy=True),
        Case("_npi_eye", {"N": 4, "k": 1}, [], "n", numpy=True),
        Case("_linspace", {"start": 1, "stop": 2, "num": 5}, [], ""),
        Case("_npi_identity", {"shape": "(6, 6)", "dtype": "float64"}, [], "n", numpy=True),
        Case("_npi_indices", {"dimensions": "(3, 4)"}, [], "", numpy=True),
        Case("_npi_logspace", {"start": 1, "stop": 2, "num": 5}, [], "", numpy=True),
        Case("_npi_polyval", {}, [real(4), real(5, 3)], numpy=True),
    ]


def matrix_products() -> List[Case]:
    a, at, b, bt = real(4, 6), real(6, 4), real(6, 5), real(5, 6)
    return [
        Case("dot", {}, [a, b], "n m k+"),
        Case("dot", {"transpose_a": "True"}, [at, b], "n m k+"),
        Case("dot", {"transpose_b": "1", "forward_stype": "default"}, [a, bt], "n m k+"),
        Case("dot", {"transpose_a": "True", "transpose_b": "True"}, [at, bt], "n m k+"),
        Case("dot", {}, [real(6), real(6)], "k+"),
        Case("dot", {}, [real(2, 4, 6), real(6, 3, 5)], "n n1 m m1 k+"),
        Case("dot", {}, [real(4, 6), real(6)], "n k+"),
        Case("batch_dot", {}, [real(3, 4, 6), real(3, 6, 5)], "b n m k+"),
        Case("batch_dot", {"transpose_a": 1, "transpose_b": 1}, [real(3, 6, 4), real(3, 5, 6)], "b n m k+"),
        Case("batch_dot", {"transpose_b": "True"}, [real(3, 2, 4, 6), real(3, 2, 5, 6)], "b b1 n m k+"),
        Case("_linalg_gemm2", {"alpha": 2, "transpose_b": 1}, [real(3, 4, 6), real(3, 5, 6)], "b n m k+"),
        Case("_np_dot", {}, [a, b], "n m k+", numpy=True),
        Case("_np_dot", {}, [real(6), real(6)], "k+", numpy=True),
        Case("_np_dot", {}, [real(2, 4, 6), real(6)], "n n1 k+", numpy=True),
        Case("_npi_matmul", {}, [a, b], "n m k+", numpy=True),
        Case("_npi_matmul", {}, [real(6), b], "m k+", numpy=True),
        Case("_npi_matmul", {}, [real(3, 4, 6), real(6)], "b n k+", numpy=True),
        Case("_npi_matmul", {}, [real(2, 3, 4, 6), real(3, 6, 5)], "b b1 n m k+", numpy=True),
        Case("_npi_matmul", {}, [real(2, 3, 4, 6), real(1, 6, 5)], "b b1 n m k+", numpy=True),
        Case("_npi_tensordot", {"a_axes_summed": "[0, 2]", "b_axes_summed": "[1, 0]"}, [real(4, 3, 2), real(2, 4, 5)],
             "n m k+ k1+", numpy=True),
        Case("_npi_tensordot", {"a_axes_summed": "[-1]", "b_axes_summed": "[0]"}, [real(4, 3, 2), real(2, 4)],
             "n n1 m k+", numpy=True),
        Case("_npi_tensordot_int_axes", {"axes": 2}, [real(4, 3, 2), real(3, 2, 5)], "n m k+ k1+", numpy=True),
        Case("_npi_einsum", {"num_args": 2, "subscripts": "ij,kj->ik", "optimize": 0}, [a, bt], "i k j+", numpy=True),
        Case("_npi_einsum", {"num_args": 1, "subscripts": "bij -> jb", "optimize": 0}, [real(2, 3, 4)], "b j i+",
             numpy=True),
        Case("_npi_einsum", {"num_args": 3, "subscripts": "ab,bc,cd->ad", "optimize": 1}, [a, b, real(5, 2)],
             "a d b+ c+", numpy=True),
    ]


def reductions() -> List[Case]:
    x = positive(4, 3, 6)
    cases = [
        Case("sum", {"axis": "1"}, [x], "n d1+ d2"),
        Case("sum", {"axis": "(0, -1)", "keepdims": "True"}, [x], "n+ d1 d2+"),
        Case("sum", {"axis": "(1,)", "exclude": "True"}, [x], "n+ d1 d2+"),
        Case("sum", {"axis": "(1,)", "exclude": 1, "keepdims": 1}, [x], "n+ d1 d2+"),
        Case("sum", {}, [x], "n+ d1+ d2+"),
        Case("sum", {"axis": "()"}, [x], "n+ d1+ d2+"),
        Case("sum", {"axis": "None", "keepdims": "True"}, [x], "n+ d1+ d2+"),
        Case("sum", {"axis": "(0, 1, 2)"}, [x], "n+ d1+ d2+"),
        Case("nansum", {"axis": "0"}, [x], "n+ d1 d2"),
        Case("mean", {"axis": "0", "exclude": "True"}, [x], "n d1+ d2+"),
        Case("mean", {}, [x], "n+ d1+ d2+"),
        Case("mean", {"axis": "(0, 2)"}, [x], "n+ d1 d2+"),
        Case("_np_sum", {"axis": "None", "keepdims": "False"}, [x], "n+ d1+ d2+", numpy=True),
        Case("_np_sum", {"axis": "(1, -1)", "dtype": "float64"}, [x], "n d1+ d2+", numpy=True),
        Case("_np_sum", {"axis": "()"}, [x], "n d1 d2", numpy=True),
        Case("_npi_mean", {"axis": "1", "keepdims": "True"}, [x], "n d1+ d2", numpy=True),
        Case("_npi_mean", {}, [x], "n+ d1+ d2+", numpy=True),
        Case("_npi_std", {"axis": "0", "ddof": 0}, [x], "d1 d2", training=False, numpy=True),
        Case("_npi_var", {"axis": "1", "ddof": 1}, [x], "n d2", training=False, numpy=True),
        Case("_npi_var", {"axis": "None"}, [x], "", training=False, numpy=True),
        Case("_np_all", {"axis": "1"}, [index(2, 4, 3, 6)], "n d2", numpy=True),
        Case("_np_any", {"axis": "1"}, [index(2, 4, 3, 6)], "n d2", numpy=True),
        Case("norm", {}, [x], "n* d1* d2*"),
        Case("norm", {"axis": "(0, 2)", "keepdims": "True"}, [x], "n* d1 d2*"),
        Case("norm", {"axis": "1", "ord": 1}, [x], "n d2"),
        Case("moments", {"axes": "(0, 1)"}, [x], "d2"),
        Case("argmax", {"axis": 1}, [x], "n d1* d2", training=False),
        Case("argmin", {"axis": "-1", "keepdims": "True"}, [x], "n d1 d2*", training=False),
        # Of equal elements the first.
        Case("argmax", {"axis": 0}, [index(3, 6, 4)], "n* d1", training=False),
        Case("_npi_argmax", {"axis": "0"}, [x], "d1 d2", training=False, numpy=True),
        Case("_npi_argmin", {"axis": "0", "keepdims": "True"}, [x], "d1 d2", training=False, numpy=True),
        Case("argmax_channel", {}, [real(4, 6)], "n", training=False),
        Case("_npi_average", {"axis": 1, "weighted": "True"}, [x, x], "n d2", numpy=True),
        Case("_npi_average", {"axis": -2, "weighted": "True"}, [x, positive(3)], "n d2", numpy=True),
        Case("_npi_average", {"axis": 1, "weighted": "True", "returned": "True"}, [x, x], "n d2", numpy=True),
        Case("_npi_average", {"axis": 1, "weighted": "True", "returned": 1}, [x, positive(3)], "", numpy=True),
        Case("_npi_average", {"axis": "None", "weighted": "False", "returned": 1}, [x], "", numpy=True),
        Case("_npi_average", {"axis": "(0, 1)", "weighted": "False"}, [x], "d2", numpy=True),
        Case("_npi_percentile", {"axis": 1, "q_scalar": 30}, [x], "n d2", numpy=True),
        Case("_npi_percentile", {"axis": "(0, -1)", "keepdims": "True", "interpolation": "nearest"},
             [x, Operand((4,), lambda rng, s: rng.uniform(0, 100, size=s))], "d1 q0", numpy=True),
        Case("_npi_norm", {"ord": 2, "axis": "(1,)", "keepdims": 0, "flag": 1}, [x], "n d2", numpy=True),
        Case("_npi_norm", {"ord": 2, "axis": "None", "keepdims": 0, "flag": -2}, [x], "", numpy=True),
        Case("_npi_norm", {"ord": 2, "axis": "(1, 2)", "keepdims": 1, "flag": 0}, [x], "n", numpy=True),
        Case("multi_sum_sq", {"num_arrays": 1}, [x], "n+ d1+ d2+", training=False),
    ]
    cases += [Case(op, {"axis": "(1,)"}, [x], "n d1+ d2") for op in ("max", "min")]
    cases += [Case(op, {"axis": "(1,)"}, [x], "n d2") for op in ("prod", "nanprod")]
    cases += [Case(op, {"axis": "1"}, [x], "n d1+ d2", numpy=True) for op in ("_np_max", "_np_min")]
    cases += [Case("_np_max", {"axis": "None"}, [x], "", numpy=True),
              Case("_np_prod", {"axis": "1"}, [x], "n d2", numpy=True)]
    return cases


def reshapes() -> List[Case]:
    def reshape(shape, codes, factors, **attrs):
        return Case("Reshape", {"shape": codes, **attrs}, [real(*shape)], factors)

    return [
        Case("Flatten", {}, [real(4, 6, 2, 3)], "n d1"),
        Case("Flatten", {}, [real(4, 6)], "n d1"),
        Case("Flatten", {}, [real(4)], "n"),
        reshape((4, 6, 5), "(0, -1)", "n d1"),
        reshape((4, 6, 5), "(-1, 5)", "n d2"),
        reshape((4, 6, 5), "(-3, 0)", "n d2"),
        reshape((4, 6, 5), "(0, -4, 2, -1, 0)", "n d1 d2"),
        reshape((4, 6, 5), "(-2, 1)", "n d1 d2"),
        reshape((4, 6), "(24,)", "n"),
        reshape((24,), "(4, 6)", "n"),
        reshape((12, 4), "(8, 6)", "n"),
        reshape((4, 1, 6), "(1, 4, 6, 1)", "n d2"),
        reshape((4, 6), "(3, 8)", ""),
        reshape((10, 5, 4), "(-1, 0)", "n d2", reverse="True"),
        reshape((4, 6), "(-1,)", "n"),
        Case("_np_reshape", {"newshape": "(-1, 5)"}, [real(4, 6, 5)], "n d2", numpy=True),
        Case("_np_reshape", {"newshape": "()"}, [real(1)], "", numpy=True),
        Case("_npx_reshape", {"newshape": "(-2, -1)"}, [real(4, 6, 5)], "n d1", numpy=True),
        Case("_npx_reshape", {"newshape": "(-5, -4)"}, [real(4, 6, 5)], "n d2", numpy=True),
        Case("reshape_like", {}, [real(4, 6), real(4, 2, 3)], "n d1"),
        Case("reshape_like", {}, [real(4, 1), real(4)], "n"),
        Case("expand_dims", {"axis": 1}, [real(4, 3)], "n d1"),
        Case("expand_dims", {"axis": -1}, [real(4, 3)], "n d1"),
        Case("squeeze", {}, [real(4, 1, 3, 1)], "n d2"),
        Case("squeeze", {}, [real(4, 3)], "n d1"),
        Case("squeeze", {"axis": "(1,)"}, [real(4, 1, 3, 1)], "n d2"),
        Case("squeeze", {}, [real(1, 1)], ""),
        Case("_np_squeeze", {"axis": "None"}, [real(1, 4, 1, 3)], "d1 d3", numpy=True),
        Case("_np_squeeze", {"axis": "None"}, [real(4, 3)], "n d1", numpy=True),
        Case("_np_squeeze", {"axis": "-1"}, [real(4, 3, 1)], "n d1", numpy=True),
        Case("_np_atleast_1d", {"num_args": 1}, [real(4, 3)], "n d1", numpy=True),
        Case("_np_atleast_2d", {"num_args": 1}, [real(4)], "n", numpy=True),
        Case("_np_atleast_3d", {"num_args": 1}, [real(4, 3)], "n d1", numpy=True),
        Case("depth_to_space", {"block_size": 2}, [real(4, 8, 3, 2)], "n h w"),
        Case("space_to_depth", {"block_size": 2}, [real(4, 2, 6, 4)], "n h w"),
    ]


def permutations() -> List[Case]:
    x = real(4, 3, 6)
    return [
        Case("transpose", {}, [x]),
        Case("transpose", {"axes": "(1, 2, 0)"}, [x]),
        Case("_np_transpose", {"axes": "None"}, [x], numpy=True),
        Case("_np_transpose", {"axes": "(0, 2, 1)"}, [x], numpy=True),
        Case("SwapAxis", {"dim1": 0, "dim2": 2}, [x]),
        Case("SwapAxis", {}, [x]),
        Case("_np_moveaxis", {"source": "0", "destination": "2"}, [x], numpy=True),
        Case("_np_moveaxis", {"source": "(0, -1)", "destination": "(-1, 1)"}, [x], numpy=True),
    ]


def joining() -> List[Case]:
    x = real(4, 3, 6)
    two = {"num_args": 2}
    return [
        Case("Concat", two, [real(4, 3, 6), real(4, 2, 6)], "n d2"),
        Case("Concat", {**two, "dim": 0}, [real(4, 3), real(2, 3)], "d1"),
        Case("Concat", {**two, "dim": -1}, [real(4, 3), real(4, 2)], "n"),
        Case("_npi_concatenate", {**two, "axis": 1}, [real(4, 3), real(4, 2)], "n", numpy=True),
        Case("stack", {**two, "axis": 1}, [real(4, 3), real(4, 3)], "n d2"),
        Case("stack", {**two, "axis": -1}, [real(4, 3), real(4, 3)], "n d1"),
        Case("_npi_stack", two, [real(4, 3), real(4, 3)], "d1 d2", numpy=True),
        Case("_npi_vstack", two, [real(4, 3), real(2, 3)], "d1", numpy=True),
        Case("_npi_hstack", two, [real(4, 3), real(4, 2)], "n", numpy=True),
        Case("_npi_dstack", two, [real(4, 3, 2), real(4, 3, 1)], "n d1", numpy=True),
        Case("_npi_column_stack", two, [real(4), real(4, 3)], "n", numpy=True),
        Case("repeat", {"repeats": 2, "axis": 1}, [x]),
        Case("tile", {"reps": "(1, 2, 1)"}, [x], "n d2"),
        Case("tile", {"reps": "(2,)"}, [x], "n d1"),
        Case("tile", {"reps": "(2, 1, 1, 1)"}, [x], "d1 d2 d3"),
        Case("Pad", {"mode": "constant", "pad_width": "(0, 0, 0, 0, 1, 2, 1, 1)", "constant_value": 2},
             [real(2, 3, 4, 5)], "n d1"),
        Case("Pad", {"mode": "reflect", "pad_width": "(0, 0, 0, 0, 1, 2, 1, 1)"}, [real(2, 3, 4, 5)], "n d1"),
        Case("Pad", {"mode": "edge", "pad_width": "(0, 0, 0, 0, 1, 2, 0, 0)"}, [real(2, 3, 4, 5)], "n d1 d3"),
        Case("_npi_pad", {"pad_width": "((0, 0), (1, 1))", "mode": "constant", "constant_value": 0}, [real(4, 3)], "n",
             numpy=True),
    ]


def slicing() -> List[Case]:
    x = real(4, 3, 6)
    return [
        Case("slice", {"begin": "(None, 1)", "end": "(None, 3)"}, [x], "n d2"),
        Case("slice", {"begin": "(0, 0, 1)", "end": "(4, 3, 6)", "step": "(1, 1, 2)"}, [x], "n d1"),
        Case("slice", {"begin": "(1,)", "end": "(None,)"}, [x], "d1 d2"),
        Case("slice", {"begin": "(None, None)", "end": "(None, None)", "step": "(None, -1)"}, [x], "n d2"),
        Case("slice_axis", {"axis": 1, "begin": 1, "end": "None"}, [x], "n d2"),
        Case("slice_axis", {"axis": -1, "begin": -2, "end": -1}, [x], "n d1"),
        Case("slice_axis", {"axis": 1, "begin": 0, "end": 3}, [x]),
        Case("slice_axis", {"axis": 1, "begin": -3, "end": "None"}, [x]),
        Case("slice_like", {"axes": "(1,)"}, [x, real(2, 2)], "n d2 l0"),
        Case("slice_like", {"axes": "(0, 1)"}, [x, real(2, 3, 5)], "d1 d2 l2"),
        Case("SliceChannel", {"num_outputs": 3, "axis": 1}, [x], "n d2"),
        Case("SliceChannel", {"num_outputs": 3, "axis": 1, "squeeze_axis": "True"}, [x], "n d2"),
        Case("_split_v2", {"axis": 2, "indices": "(0, 2, 5)"}, [x], "n d1"),
        Case("_split_v2", {"axis": "0", "indices": "[]", "sections": 2, "squeeze_axis": "False"}, [x], "d1 d2"),
        Case("_npi_hsplit", {"indices": "(0, 2)"}, [x], "n d2", numpy=True),
        Case("_npi_hsplit", {"indices": "()", "sections": 2}, [real(6)], "", numpy=True),
        Case("_npi_dsplit", {"indices": "(0, 2)", "axis": 2}, [x], "n d1", numpy=True),
        Case("_slice_assign", {"begin": "(None, 1)", "end": "(None, 2)"}, [x, real(4, 1, 6)], "n d2", training=False),
        Case("_slice_assign_scalar", {"begin": "(1,)", "end": "(None,)", "scalar": 3}, [x], "d1 d2", training=False),
        Case("_npi_insert_scalar", {"int_ind": 1, "axis": 1}, [x, real()], "n d2", training=False, numpy=True),
        Case("_npi_insert_slice", {"start": 0, "stop": 3, "step": 2, "axis": 1}, [x, real(4, 2, 1)], "n d2",
             training=False, numpy=True),
        Case("_npi_insert_slice", {"start": 0, "stop": 3, "step": 2, "axis": -1}, [x, real(1)], "n d1",
             training=False, numpy=True),
        Case("_npi_insert_tensor", {"axis": 1}, [x, real(4, 2, 6), index(3, 2, dtype="int64")], "n d2",
             training=False, numpy=True),
    ]


def ordering() -> List[Case]:
    x = real(4, 3, 6)
    return [
        Case("sort", {"axis": 1, "is_ascend": "False"}, [x], "n d2"),
        Case("argsort", {}, [x], "n d1", training=False),
        Case("topk", {"k": 2, "ret_typ": "value"}, [x], "n d1"),
        Case("topk", {"k": 2, "ret_typ": "both", "axis": 1}, [x], "n d2", training=False),
        Case("topk", {"k": 2, "ret_typ": "mask"}, [x], "n d1", training=False),
        Case("_npi_diff", {"axis": 1}, [x], "n d2", numpy=True),
        Case("_np_cumsum", {"axis": "0"}, [x], "d1 d2"),
        Case("reverse", {"axis": "(0, 2)"}, [x], "d1"),
        Case("_npi_flip", {"axis": "1"}, [x], "n d2", numpy=True),
        Case("_np_roll", {"shift": "(1,)", "axis": "(0,)"}, [x], "d1 d2", numpy=True),
        Case("_npi_rot90", {"k": 1, "axes": "(0, 2)"}, [x], "d1", numpy=True),
        Case("_npi_rot90", {"k": 2, "axes": "(0, 1)"}, [x], "d2", numpy=True),
    ]


def softmax() -> List[Case]:
    x = real(4, 3, 6)
    cases = [Case(op, {"axis": 1}, [x], "n d1* d2") for op in ("softmax", "log_softmax", "softmin")]
    return cases + [
        # Numbers whose powers are only representable when their maximum is taken off.
        *[Case(op, {}, [Operand((4, 6), lambda rng, s: rng.normal(size=s) * 300)], "n d1*") for op in
          ("softmax", "log_softmax")],
        Case("softmax", {"temperature": 2.0}, [x], "n d1 d2*"),
        Case("log_softmax", {"axis": "-1", "dtype": "float64"}, [x], "n d1 d2*"),
        Case("softmax", {"use_length": "True", "axis": 2}, [x, length(6, 4, 3, dtype="int32")], "n d1"),
        Case("SoftmaxActivation", {}, [real(4, 6)], "n d1*"),
        Case("SoftmaxActivation", {}, [real(4, 6, 3)], "n"),
        Case("SoftmaxActivation", {"mode": "channel"}, [real(4, 3, 2, 2)], "n d1* d2 d3"),
    ]


def losses() -> List[Case]:
    op = "SoftmaxOutput"

    def target(*shape):
        return Operand(shape, real().draw, gradient=False)

    return [
        Case(op, {}, [real(4, 6), index(6, 4)], "n"),
        Case(op, {"grad_scale": 2, "use_ignore": 1, "ignore_label": 1}, [real(4, 6), index(6, 4)], "n"),
        Case(op, {"out_grad": "True", "smooth_alpha": 0.1}, [real(4, 6), index(6, 4)], "n"),
        Case(op, {}, [real(4, 6), target(4, 6)], "n"),
        Case(op, {"multi_output": "True"}, [real(4, 3, 2, 2), index(3, 4, 4)], "n"),
        Case(op, {"multi_output": "True"}, [real(4, 3, 2, 2), index(3, 4, 2, 2)], "n"),
        Case(op, {"preserve_shape": "True"}, [real(4, 3, 6), index(6, 4, 3)], "n d1"),
        Case("LinearRegressionOutput", {}, [real(4, 6), target(4, 6)], "n"),
        Case("LinearRegressionOutput", {"grad_scale": 2}, [real(4, 1), target(4)], "n"),
        Case("LogisticRegressionOutput", {}, [real(4, 6), target(4, 6)], "n"),
        Case("MAERegressionOutput", {}, [real(4, 3, 2), target(4, 3, 2)], "n"),
        Case("SVMOutput", {}, [real(4, 6), index(6, 4)], "n"),
        Case("SVMOutput", {"use_linear": "True"}, [real(4, 6), index(6, 4)], "n"),
        Case("MakeLoss", {"grad_scale": 2}, [real(4, 6)], "n d1"),
        Case("MakeLoss", {"normalization": "batch"}, [real(4, 6)], "d1"),
        Case("make_loss", {}, [real(4, 6)], "n d1"),
        Case("softmax_cross_entropy", {}, [real(4, 6), index(6, 4)], "n+"),
    ]


def _stray_index(high: int, *shape: int, dtype: str = "float32") -> Operand:
    """Return indices of which some lie before 0 or behind high-1."""
    return Operand(shape, lambda rng, s: rng.randint(-3, high + 3, size=s), gradient=False, dtype=dtype)


def _distinct_places(high: int, *shape: int) -> Operand:
    """Return indices of which no two columns are equal."""
    return Operand(shape, lambda rng, s: [rng.permutation(high)[:s[1]] for _ in range(s[0])], gradient=False)


def indexing() -> List[Case]:
    return [
        Case("Embedding", {"input_dim": 7, "output_dim": 6}, [index(7, 4), real(7, 6)], "n o v+"),
        Case("Embedding", {"input_dim": 7, "output_dim": 6, "sparse_grad": "False"}, [index(7, 4, 3), real(7, 6)],
             "n i1 o v+"),
        Case("Embedding", {"input_dim": 7, "output_dim": 6}, [_stray_index(7, 9, 3), real(7, 6)], "n i1 o v+"),
        Case("Embedding", {"input_dim": 7, "output_dim": 6}, [_stray_index(7, 9, dtype="int32"), real(7, 6)], "n o v+"),
        Case("take", {"axis": 0}, [real(7, 6), index(7, 4, 3)], "v+ d1 i i1"),
        Case("take", {"axis": 1}, [real(2, 7, 6), _stray_index(7, 9)], "n v+ d2 i"),
        Case("take", {"axis": -1, "mode": "wrap"}, [real(2, 4, 6), index(9, 3)], "n d1 i"),
        Case("take", {"axis": 1, "mode": "raise"}, [real(2, 4, 6), index(4)], "n d2", numpy=True),
        Case("pick", {"axis": "-1", "keepdims": "True"}, [real(4, 6), index(6, 4)], "n v+"),
        Case("pick", {}, [real(4, 3, 6), index(6, 4, 3)], "n d1 v+"),
        Case("pick", {"axis": 1, "keepdims": "True"}, [real(4, 6, 3), _stray_index(6, 4, 1, 3)], "n d2 v+"),
        Case("pick", {"axis": 1, "mode": "wrap"}, [real(4, 3, 6), index(5, 4, 1, 6)], "n d2"),
        Case("pick", {"axis": 0}, [real(6), index(6, 1)], "v+"),
        Case("batch_take", {}, [real(4, 6), index(6, 4, dtype="int32")], "n", training=False),
        Case("one_hot", {"depth": 6}, [index(6, 4, 3)], "n i1 v"),
        Case("one_hot", {"depth": 6, "off_value": 0.1}, [_stray_index(6, 9)], "n v"),
        Case("gather_nd", {}, [real(4, 3, 6), index(3, 2, 5, dtype="int32")], "d2 i"),
        Case("gather_nd", {}, [real(4, 3, 6), index(3, 1, 5, 2, dtype="int32")], "d1 d2 i i1"),
        Case("scatter_nd", {"shape": "(4, 5, 6)"}, [real(3, 6), _distinct_places(4, 2, 3)], "d2"),
        Case("scatter_nd", {"shape": "(4, 5, 6)"}, [real(3, 5, 6), _distinct_places(4, 1, 3)], "d1 d2"),
        Case("_ravel_multi_index", {"shape": "(5, 6)"}, [index(5, 2, 7)], "n"),
        Case("_unravel_index", {"shape": "(5, 6)"}, [index(30, 7)], "n"),
    ]


def sequences() -> List[Case]:
    x = real(5, 4, 3)
    lengths = {"use_sequence_length": "True"}
    cases = [Case(op, lengths, [x, length(5, 4)], "d1 d2") for op in
             ("SequenceMask", "SequenceLast", "SequenceReverse")]
    return cases + [
        Case("SequenceMask", {**lengths, "axis": 1, "value": 7}, [real(4, 5, 3), length(5, 4)], "n d2"),
        Case("SequenceMask", {}, [x], "d1 d2"),
        Case("SequenceLast", {"axis": 1}, [real(4, 5)], "n"),
    ]


def attention() -> List[Case]:
    prefix = "_contrib_interleaved_matmul_"
    return [
        Case(prefix + "selfatt_qk", {"heads": 2}, [real(5, 4, 18)], "n"),
        Case(prefix + "selfatt_qk", {"heads": 4}, [real(5, 1, 36)], "h"),
        Case(prefix + "selfatt_qk", {"heads": 1}, [real(5, 4, 9)], "n"),
        Case(prefix + "selfatt_valatt", {"heads": 2}, [real(5, 4, 18), real(8, 5, 5)], "n"),
        Case(prefix + "selfatt_valatt", {"heads": 4}, [real(5, 1, 36), real(4, 5, 5)], "h"),
        Case(prefix + "encdec_qk", {"heads": 2}, [real(5, 4, 6), real(7, 4, 12)], "n t s"),
        Case(prefix + "encdec_qk", {"heads": 6}, [real(5, 1, 18), real(7, 1, 36)], "h t s"),
        Case(prefix + "encdec_valatt", {"heads": 2}, [real(7, 4, 12), real(8, 5, 7)], "n t s+"),
        Case(prefix + "encdec_valatt", {"heads": 6}, [real(7, 1, 36), real(6, 5, 7)], "h t s+"),
    ]


def recurrent() -> List[Case]:
    def rnn(mode, gates, layers=1, directions=1, inputs=3, units=4, **attrs):
        states = [real(layers * directions, 6, units)] * (2 if mode == "lstm" else 1)
        count, width = 0, inputs
        for _ in range(layers):
            count += directions * gates * units * (width + units + 2)
            width = directions * units
        attrs = {"mode": mode, "state_size": units, "num_layers": layers, "bidirectional": directions == 2, **attrs}
        return Case("RNN", attrs, [real(5, 6, inputs), real(count), *states], "n")

    return [
        rnn("lstm", 4, state_outputs="True"),
        rnn("lstm", 4, layers=2, directions=2, state_outputs="True", p="0.0"),
        rnn("lstm", 4, layers=2),
        rnn("gru", 3, layers=2, state_outputs="True"),
        rnn("rnn_tanh", 1, state_outputs="True"),
        rnn("rnn_relu", 1, directions=2),
        Case("_rnn_param_concat", {"num_args": 2, "dim": 0}, [real(4), real(6)], ""),
    ]


FAMILIES = (dense, convolution, pooling, normalization, elementwise, dropout, broadcast, matrix_products, reductions,
            reshapes, permutations, joining, slicing, ordering, softmax, losses, indexing, sequences,
            attention, recurrent, *NUMERIC_FAMILIES)

CASES = [case for family in FAMILIES for case in family()] + vision_cases.CASES

# Operators whose gradient spoils a cut along every dim, or whose meaning a cut would change, or that MXNet itself does
# not run soundly; with the shapes of their outputs.
UNKNOWN = [
    (Case("SoftmaxOutput", {"normalization": "batch"}, [real(4, 6), index(6, 4)]), [(4, 6)]),
    (Case("SoftmaxOutput", {"normalization": "valid"}, [real(4, 6), index(6, 4)]), [(4, 6)]),
    (Case("MakeLoss", {"normalization": "valid"}, [real(4, 6)]), [(4, 6)]),
    (Case("Convolution", {"kernel": "(3, 3)", "num_filter": 4, "layout": "NHWC"},
          [real(3, 9, 9, 2), real(4, 3, 3, 2), real(4)]), [(3, 7, 7, 4)]),
    (Case("Pooling", {"kernel": "(3, 3)", "layout": "NHWC"}, [real(3, 9, 9, 2)]), [(3, 7, 7, 2)]),
    (Case("argmax", {}, [real(4, 6)]), [(1,)]),
    (Case("_np_cumsum", {}, [real(4, 6)]), [(24,)]),
    (Case("repeat", {"repeats": 2}, [real(4, 6)]), [(48,)]),
    (Case("LeakyReLU", {"act_type": "prelu"}, [real(4, 8), real(4)]), [(4, 8)]),
    (Case("LeakyReLU", {"act_type": "rrelu"}, [real(4, 8)]), [(4, 8), (4, 8)]),
    (Case("_npi_concatenate", {"num_args": 2, "axis": "None"}, [real(4, 3), real(4, 2)]), [(20,)]),
    (Case("_np_reshape", {"newshape": "(2, 12)", "order": "F"}, [real(4, 6)]), [(2, 12)]),
    (Case("_npi_einsum", {"num_args": 1, "subscripts": "ii->i", "optimize": 0}, [real(4, 4)]), [(4,)]),
    (Case("_npi_matmul", {}, [real(2, 1, 4, 6), real(3, 6, 5)]), [(2, 3, 4, 5)]),
    (Case("Embedding", {"input_dim": 7, "output_dim": 6, "sparse_grad": "True"}, [index(7, 4), real(7, 6)]), [(4, 6)]),
    (Case("_shuffle", {}, [real(4, 6)]), [(4, 6)]),
    (Case("_npi_choice", {"a": 5, "size": "(4,)", "replace": "False", "weighted": "False"}, []), [(4,)]),
    (Case("multi_sum_sq", {"num_arrays": 2}, [real(4, 6), real(3)]), [(2,)]),
    (Case("_np_atleast_2d", {"num_args": 2}, [real(4), real(3)]), [(1, 4), (1, 3)]),
    (Case("diag", {}, [real(4)]), [(4, 4)]),
    (Case("_npi_tril", {}, [real(4)]), [(4, 4)]),
    (Case("_npi_insert_scalar", {"int_ind": 1, "axis": 1}, [real(4, 6), real(4)]), [(4, 7)]),
    (Case("_npi_insert_slice", {"start": 0, "stop": 3, "step": 2, "axis": 1}, [real(4, 6), real(2)]), [(4, 8)]),
    (Case("cast_storage", {"stype": "row_sparse"}, [real(4, 6)]), [(4, 6)]),
    (Case("_unravel_index", {"shape": "(5, 6)"}, [real(4, 6)]), [(2, 4, 6)]),
]

UNKNOWN += vision_cases.UNKNOWN

# Attributes that a rule reads: one that does not parse makes the operator unknown.
READ = {
    "FullyConnected": ("num_hidden", "no_bias", "flatten"),
    "Convolution": ("num_filter", "num_group", "no_bias", "kernel", "stride", "pad", "dilate", "layout"),
    "Deconvolution": ("num_filter", "num_group", "no_bias", "kernel", "stride", "pad", "adj", "target_shape", "layout"),
    "Pooling": ("global_pool", "layout", "kernel", "stride", "pad"),
    "BatchNorm": ("axis", "use_global_stats"),
    "LayerNorm": ("axis",),
    "GroupNorm": ("num_groups",),
    "L2Normalization": ("mode",),
    "Dropout": ("axes", "mode"),
    "LeakyReLU": ("act_type",),
    "broadcast_to": ("shape",),
    "broadcast_axis": ("axis",),
    "broadcast_like": ("lhs_axes", "rhs_axes"),
    "_zeros": ("shape",),
    "dot": ("transpose_a", "transpose_b", "forward_stype"),
    "batch_dot": ("transpose_a", "transpose_b", "forward_stype"),
    "_linalg_gemm": ("transpose_a", "transpose_b", "axis"),
    "_linalg_gemm2": ("transpose_a", "transpose_b", "axis"),
    "_linalg_syrk": ("transpose",),
    "_linalg_trmm": ("rightside",),
    "_linalg_trsm": ("rightside",),
    "diag": ("axis1", "axis2"),
    "_random_uniform": ("shape",),
    "_sample_normal": ("shape",),
    "_sample_multinomial": ("shape",),
    "_npi_uniform": ("size",),
    "_npi_uniform_n": ("size",),
    "_npi_multinomial": ("size",),
    "_npi_choice": ("size", "replace"),
    "_npi_average": ("axis", "weighted"),
    "_npi_percentile": ("axis", "keepdims"),
    "_npi_rot90": ("axes",),
    "_npi_insert_slice": ("axis",),
    "_slice_assign": ("begin", "end", "step"),
    "scatter_nd": ("shape",),
    "_npi_tensordot": ("a_axes_summed", "b_axes_summed"),
    "_npi_tensordot_int_axes": ("axes",),
    "_npi_einsum": ("subscripts",),
    "sum": ("axis", "keepdims", "exclude"),
    "_npi_mean": ("axis", "keepdims"),
    "moments": ("axes", "keepdims"),
    "argmax": ("axis", "keepdims"),
    "Reshape": ("shape",),
    "_np_reshape": ("newshape", "order"),
    "_npx_reshape": ("newshape", "order"),
    "reshape_like": ("lhs_begin", "rhs_end"),
    "expand_dims": ("axis",),
    "squeeze": ("axis",),
    "transpose": ("axes",),
    "SwapAxis": ("dim1", "dim2"),
    "_np_moveaxis": ("source", "destination"),
    "Concat": ("dim",),
    "_npi_concatenate": ("axis",),
    "stack": ("axis",),
    "repeat": ("axis", "repeats"),
    "tile": ("reps",),
    "Pad": ("pad_width",),
    "_npi_pad": ("pad_width",),
    "slice": ("begin", "end", "step"),
    "slice_axis": ("axis", "begin", "end"),
    "slice_like": ("axes",),
    "SliceChannel": ("axis", "squeeze_axis"),
    "sort": ("axis",),
    "_np_cumsum": ("axis",),
    "reverse": ("axis",),
    "softmax": ("axis", "use_length"),
    "SoftmaxActivation": ("mode",),
    "SoftmaxOutput": ("multi_output", "preserve_shape", "normalization"),
    "MakeLoss": ("normalization",),
    "Embedding": ("input_dim", "output_dim", "sparse_grad"),
    "one_hot": ("depth",),
    "take": ("axis",),
    "pick": ("axis", "keepdims"),
    "_contrib_interleaved_matmul_selfatt_qk": ("heads",),
    "_contrib_interleaved_matmul_selfatt_valatt": ("heads",),
    "_contrib_interleaved_matmul_encdec_qk": ("heads",),
    "_contrib_interleaved_matmul_encdec_valatt": ("heads",),
    "RNN": ("mode", "use_sequence_length"),
    "_contrib_arange_like": ("axis", "start", "step", "repeat"),
    "SequenceMask": ("axis", "use_sequence_length"),
    "UpSampling": ("sample_type",),
    **vision_cases.READ,
}
