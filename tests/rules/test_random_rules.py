"""Rules of drawn shapes and attributes against MXNet itself."""
from __future__ import annotations

import os

import numpy as np
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from tests.rules.cutting import Case, check_rule, positive, real

EXAMPLES = int(os.environ.get("SOYBEAN_MX_TEST_EXAMPLES", "40"))
drawn = settings(max_examples=EXAMPLES, deadline=None, database=None, derandomize=True,
                 suppress_health_check=list(HealthCheck))

extents = st.integers(1, 6)


@st.composite
def shapes(draw, least=1, most=4):
    """Draw a shape of few elements."""
    return tuple(draw(st.lists(extents, min_size=least, max_size=most)))


@st.composite
def convolutions(draw):
    """Draw a Convolution or Deconvolution with groups, strides, padding and dilation."""
    transposed = draw(st.booleans())
    spatial = draw(st.integers(1, 3 if not transposed else 2))
    groups = draw(st.sampled_from([1, 1, 2, 3, 4]))
    channels, filters = groups * draw(st.integers(1, 3)), groups * draw(st.integers(1, 3))
    kernel = [draw(st.integers(1, 3)) for _ in range(spatial)]
    stride = [draw(st.integers(1, 2)) for _ in range(spatial)]
    pad = [draw(st.integers(0, (k - 1) // 2)) for k in kernel]
    dilate = [1 if transposed else draw(st.integers(1, 2)) for _ in range(spatial)]
    image = [(k - 1) * d + 1 + draw(st.integers(0, 6)) for k, d in zip(kernel, dilate)]
    bias = draw(st.booleans())
    first, second = (channels, filters // groups) if transposed else (filters, channels // groups)
    operands = [real(draw(st.integers(1, 4)), channels, *image), real(first, second, *kernel)]
    attrs = {"kernel": tuple(kernel), "stride": tuple(stride), "pad": tuple(pad), "dilate": tuple(dilate),
             "num_filter": filters, "num_group": groups, "no_bias": not bias}
    return Case("Deconvolution" if transposed else "Convolution", attrs, operands + [real(filters)] * bias)


@st.composite
def poolings(draw):
    """Draw a Pooling with strides and padding, in both conventions."""
    spatial = draw(st.integers(1, 3))
    kernel = [draw(st.integers(1, 4)) for _ in range(spatial)]
    stride = [draw(st.integers(1, 3)) for _ in range(spatial)]
    pad = [draw(st.integers(0, k - 1)) for k in kernel]
    image = [k + draw(st.integers(0, 8)) for k in kernel]
    convention = draw(st.sampled_from(["valid", "full"]))
    # MXNet averages over nothing where a window lies beyond the image.
    whole = [(n + 2 * p - k + (s - 1 if convention == "full" else 0)) // s * s - p < n
             for n, k, s, p in zip(image, kernel, stride, pad)]
    assume(all(whole))
    attrs = {"kernel": tuple(kernel), "stride": tuple(stride), "pad": tuple(pad), "pooling_convention": convention,
             "pool_type": draw(st.sampled_from(["max", "avg", "sum"])), "count_include_pad": draw(st.booleans())}
    return Case("Pooling", attrs, [real(2, 2, *image)])


@st.composite
def dense_layers(draw):
    """Draw a FullyConnected layer."""
    shape = draw(shapes(2, 4))
    flatten, bias, units = draw(st.booleans()), draw(st.booleans()), draw(extents)
    inputs = int(np.prod(shape[1:])) if flatten else shape[-1]
    attrs = {"num_hidden": units, "flatten": flatten, "no_bias": not bias}
    return Case("FullyConnected", attrs, [real(*shape), real(units, inputs)] + [real(units)] * bias)


@st.composite
def reshapes(draw):
    """Draw a reshape that splits and merges dims of a list of prime factors."""
    factors = draw(st.lists(st.sampled_from([1, 2, 2, 3, 5]), min_size=1, max_size=6))

    def merged():
        shape, bound = [], 0
        while bound < len(factors):
            end = draw(st.integers(bound + 1, len(factors)))
            shape.append(int(np.prod(factors[bound:end])))
            bound = end
        return tuple(shape)

    source, target = merged(), merged()
    if draw(st.booleans()):
        return Case("Reshape", {"shape": target, "reverse": draw(st.booleans())}, [real(*source)])
    return Case(draw(st.sampled_from(["_np_reshape", "_npx_reshape"])), {"newshape": target}, [real(*source)],
                numpy=True)


@st.composite
def reductions(draw):
    """Draw a reduction over some axes."""
    shape = draw(shapes())
    axes = draw(st.sets(st.integers(0, len(shape) - 1)).map(sorted))
    axes = tuple(a - len(shape) if draw(st.booleans()) else a for a in axes)
    numpy = draw(st.booleans())
    names = ["_np_sum", "_npi_mean", "_np_max", "_np_min", "_np_prod"] if numpy else \
        ["sum", "nansum", "mean", "max", "min", "prod", "norm"]
    attrs = {"axis": draw(st.sampled_from([axes, None])), "keepdims": draw(st.booleans())}
    op = draw(st.sampled_from(names))
    if not numpy and op != "norm" and len(axes) < len(shape):
        attrs["exclude"] = draw(st.booleans())
    return Case(op, attrs, [positive(*shape)], numpy=numpy)


@st.composite
def broadcasts(draw):
    """Draw a broadcasting operator on two operands."""
    shape = draw(shapes())
    sides = [tuple(e if draw(st.integers(0, 3)) else 1 for e in shape) for _ in range(2)]
    numpy = draw(st.booleans())
    if numpy:
        sides[1] = sides[1][draw(st.integers(0, len(shape))):]
        op = draw(st.sampled_from(["_npi_add", "_npi_subtract", "_npi_multiply", "_npi_true_divide", "_npi_power"]))
    else:
        op = draw(st.sampled_from(["broadcast_add", "broadcast_mul", "broadcast_div", "broadcast_maximum"]))
    return Case(op, {}, [positive(*s) for s in sides], numpy=numpy)


@st.composite
def permutations(draw):
    """Draw a transposition."""
    shape = draw(shapes())
    axes = tuple(draw(st.permutations(range(len(shape)))))
    numpy = draw(st.booleans())
    return Case("_np_transpose" if numpy else "transpose", {"axes": axes}, [real(*shape)], numpy=numpy)


@st.composite
def slices(draw):
    """Draw a slice with missing, negative and clamped bounds."""
    shape = draw(shapes())
    begin, end, step = [], [], []
    for extent in shape[:draw(st.integers(1, len(shape)))]:
        first = draw(st.integers(0, extent - 1))
        begin.append(draw(st.sampled_from([None, first, first - extent] if first else [None, 0])))
        last = draw(st.integers(first + 1, extent))
        end.append(draw(st.sampled_from([None, last, extent, extent + 2])))
        step.append(draw(st.sampled_from([None, 1, 2])))
    return Case("slice", {"begin": tuple(begin), "end": tuple(end), "step": tuple(step)}, [real(*shape)])


@st.composite
def products(draw):
    """Draw a batched matrix product."""
    batch = draw(shapes(1, 2))
    n, m, k = draw(extents), draw(extents), draw(extents)
    a, b = draw(st.booleans()), draw(st.booleans())
    return Case("batch_dot", {"transpose_a": a, "transpose_b": b},
                [real(*batch, *((k, n) if a else (n, k))), real(*batch, *((m, k) if b else (k, m)))])


@drawn
@given(convolutions(), st.integers(0, 99))
def test_convolutions(case, seed):
    assert check_rule(case, seed)["known"]


@drawn
@given(poolings(), st.integers(0, 99))
def test_poolings(case, seed):
    assert check_rule(case, seed)["known"]


@drawn
@given(dense_layers(), st.integers(0, 99))
def test_dense_layers(case, seed):
    assert check_rule(case, seed)["known"]


@drawn
@given(reshapes(), st.integers(0, 99))
def test_reshapes(case, seed):
    assert check_rule(case, seed)["known"]


@drawn
@given(reductions(), st.integers(0, 99))
def test_reductions(case, seed):
    assert check_rule(case, seed)["known"]


@drawn
@given(broadcasts(), st.integers(0, 99))
def test_broadcasts(case, seed):
    assert check_rule(case, seed)["known"]


@drawn
@given(permutations(), st.integers(0, 99))
def test_permutations(case, seed):
    assert check_rule(case, seed)["known"]


@drawn
@given(slices(), st.integers(0, 99))
def test_slices(case, seed):
    assert check_rule(case, seed)["known"]


@drawn
@given(products(), st.integers(0, 99))
def test_products(case, seed):
    assert check_rule(case, seed)["known"]
