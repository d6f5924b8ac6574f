"""Operators of linear algebra and random numbers that are checked, and the factors that each should have."""
from __future__ import annotations

from typing import List, Tuple

import numpy as np

from tests.rules.cutting import Case, Operand, positive, real


def _definite(rng: np.random.RandomState, shape: Tuple[int, ...]) -> np.ndarray:
    """Return symmetric matrices whose eigenvalues lie apart, all above 1."""
    vectors = np.linalg.qr(rng.normal(size=shape))[0]
    values = 1 + np.arange(shape[-1]) + rng.uniform(0, 0.5, size=shape[:-1])
    return np.matmul(vectors * values[..., None, :], np.swapaxes(vectors, -1, -2))


def _triangular(rng: np.random.RandomState, shape: Tuple[int, ...]) -> np.ndarray:
    """Return lower and upper triangles whose inverses are of moderate size."""
    return rng.normal(size=shape) * 0.2 + 2 * np.eye(shape[-1])


def linear_algebra() -> List[Case]:
    square, definite = real(4, 3, 3), Operand((4, 3, 3), _definite)
    triangle = Operand((4, 3, 3), _triangular)
    columns, rows = real(4, 3, 5), real(4, 5, 3)
    prefix = "_linalg_"
    gemm = prefix + "gemm"
    return [
        Case(gemm, {"alpha": 2, "beta": 3}, [real(4, 3, 2), real(4, 2, 5), columns], "b n m k+"),
        Case(gemm, {"transpose_a": "True", "transpose_b": 1, "beta": 0.5}, [real(2, 3), real(5, 2), real(3, 5)],
             "n m k+"),
        Case(gemm, {"axis": 0}, [real(3, 4, 2), real(2, 4, 5), real(3, 4, 5)], "n b m k+"),
        Case(gemm + "2", {"axis": 1}, [real(3, 4, 6, 2), real(3, 2, 6, 5)], "b n b1 m k+"),
        Case(prefix + "syrk", {"alpha": 2}, [real(4, 3, 2)], "b k+"),
        Case(prefix + "syrk", {"transpose": "True"}, [real(2, 4, 6, 3)], "b b1 k+"),
        Case(prefix + "trmm", {"alpha": 2, "rightside": "True"}, [triangle, rows], "n m"),
        Case(prefix + "trmm", {"lower": 0, "transpose": 1}, [triangle, columns], "n m"),
        Case(prefix + "trsm", {"rightside": 1, "transpose": 1}, [triangle, rows], "n m"),
        Case(prefix + "trsm", {"alpha": 3}, [triangle, columns], "n m"),
        *[Case(prefix + op, {}, [definite], "n") for op in
          ("det", "slogdet", "inverse", "potrf", "potri", "syevd", "sumlogdiag")],
        Case(prefix + "det", {}, [Operand((2, 4, 3, 3), _definite)], "n d1", numpy=True),
        Case(prefix + "sumlogdiag", {}, [Operand((3, 3), _definite)], ""),
        Case(prefix + "gelqf", {}, [real(4, 2, 3)], "n"),
        Case(prefix + "makediag", {"offset": 1}, [real(4, 2, 3)], "n d1"),
        Case(prefix + "extractdiag", {"offset": -1}, [square], "n"),
        Case(prefix + "maketrian", {"offset": -1}, [real(4, 6)], "n"),
        Case(prefix + "extracttrian", {"lower": 0}, [square], "n"),
        Case("_npi_cholesky", {}, [definite], "n", numpy=True),
        *[Case(op, {}, [definite], "n", numpy=True) for op in
          ("_npi_eig", "_npi_eigh", "_npi_eigvals", "_npi_eigvalsh")],
        Case("_npi_svd", {}, [real(4, 2, 3)], "n", numpy=True),
        Case("_npi_pinv", {}, [real(4, 3, 2), Operand((4,), positive().draw)], "n", numpy=True),
        Case("_npi_pinv", {}, [real(2, 4, 3, 2), Operand((), positive().draw)], "n d1", numpy=True),
        Case("_npi_pinv_scalar_rcond", {"rcond": 0.1}, [real(4, 3, 2)], "n", numpy=True),
        Case("_npi_solve", {}, [definite, columns], "n m", numpy=True),
    ]


def diagonals() -> List[Case]:
    x = real(4, 3, 5)
    return [
        Case("diag", {"k": 1}, [x], "d2"),
        Case("diag", {"k": -1}, [x], "d1 d2"),
        Case("diag", {"axis1": 0, "axis2": -1}, [x], "n d1"),
        Case("diag", {"k": 2, "axis1": 1, "axis2": 2}, [x], "n d1"),
        Case("_np_diag", {}, [real(4, 6)], "n", numpy=True),
        Case("_np_diag", {"k": -2}, [real(7, 4)], "d1", numpy=True),
        Case("_np_diag", {"k": 1}, [real(4, 4)], "", numpy=True),
        Case("_np_diagonal", {"offset": 1, "axis1": 1, "axis2": 2}, [x], "n d1", numpy=True),
        Case("_np_trace", {"axis1": 0, "axis2": 2}, [x], "n+ d1", numpy=True),
        Case("_np_trace", {}, [real(4, 3)], "d1+", numpy=True),
        Case("_np_trace", {"offset": 2}, [real(4, 3)], "", numpy=True),
        Case("_npi_tril", {"k": 1}, [x], "n d1", numpy=True),
        Case("_npi_tril", {"k": -1}, [real(6, 4)], "n", numpy=True),
    ]


def wholes() -> List[Case]:
    """Operators of which nothing can be cut."""
    x, mask = real(4, 3), Operand((4, 3), lambda rng, s: np.ones(s), gradient=False, dtype="bool")

    def case(op, attrs, inputs, numpy=True, training=True):
        return Case(op, attrs, inputs, "", training, numpy)

    return [
        case("_contrib_allclose", {}, [x, x], numpy=False, training=False),
        case("_npi_share_memory", {}, [x, x], training=False),
        case("_npx_constraint_check", {}, [mask]),
        case("all_finite", {}, [x], numpy=False, training=False),
        case("multi_all_finite", {"num_arrays": 2}, [x, real(2)], numpy=False, training=False),
        case("_np_diagflat", {"k": 1}, [x]),
        case("_npi_diag_indices_from", {}, [real(4, 4)]),
        case("_npi_ediff1d", {}, [x]),
        case("shape_array", {}, [x], numpy=False),
        case("size_array", {}, [x], numpy=False),
        case("_npi_tensorinv", {"ind": 1}, [real(6, 2, 3)]),
        case("_npi_tensorsolve", {}, [real(2, 3, 6), real(2, 3)]),
        case("_histogram", {"bin_cnt": 5, "range": "(0, 1)"}, [positive(4, 3)], numpy=False, training=False),
        case("CTCLoss", {}, [real(5, 4, 3), Operand((4, 2), lambda rng, s: rng.randint(1, 3, size=s), gradient=False)],
             numpy=False),
    ]


def random_numbers() -> List[Case]:
    """Of what is drawn only the shapes are compared; of the densities, values and gradients."""
    def drawn(op, attrs, inputs=(), factors=None, numpy=False):
        return Case(op, attrs, list(inputs), factors, exact=False, numpy=numpy)

    one = positive(4, 3)
    counts = Operand((4, 3, 2), lambda rng, s: rng.randint(0, 5, size=s), gradient=False)
    legacy = ("exponential", "gamma", "generalized_negative_binomial", "negative_binomial", "normal", "poisson",
              "uniform")
    parameters = {name: 1 if name in ("exponential", "poisson") else 2 for name in legacy}
    shape, size = {"shape": "(4, 3)"}, {"size": "(4, 3)"}
    whole_numbers = Operand((4,), lambda rng, s: rng.randint(1, 5, size=s), gradient=False)
    ratios = Operand((5,), lambda rng, s: np.full(s, 1 / s[0]), gradient=False)
    both = {"loc": "None", "scale": "None"}
    cases = [drawn(f"_random_{name}", shape) for name in legacy]
    cases += [drawn(f"_random_{name}_like", {}, [one]) for name in legacy]
    discrete = ("negative_binomial", "generalized_negative_binomial", "poisson")
    cases += [drawn(f"_sample_{name}", {"shape": "(5,)"}, [one] * n) for name, n in parameters.items()
              if name != "negative_binomial"]
    cases += [Case(f"_random_pdf_{name}", {"is_log": log}, [counts if name in discrete else positive(4, 3, 2)]
                   + [positive(4)] * parameters[name]) for log in (False, True) for name in legacy]
    return cases + [
        drawn("_random_randint", {"low": 0, "high": 9, **shape}),
        drawn("_random_uniform", {"low": 0, "high": 1, "shape": "4", "ctx": "cpu(1)"}),
        drawn("_sample_uniform", {}, [one, one]),
        drawn("_sample_negative_binomial", {"shape": "(5,)"}, [whole_numbers, positive(4)]),
        drawn("_sample_normal", {"shape": "(2, 5)"}, [one, one]),
        drawn("_sample_multinomial", {"shape": "(3,)", "get_prob": "True"}, [positive(4, 5)]),
        drawn("_sample_multinomial", {}, [positive(4, 2, 5)]),
        drawn("_sample_multinomial", {}, [positive(5)], ""),
        drawn("_sample_multinomial", {"shape": "(4, 2)"}, [positive(5)]),
        drawn("_sample_unique_zipfian", {"range_max": 100, "shape": "(4, 5)"}, factors="n"),
        Case("_random_pdf_normal", {}, [real(4), real(4), positive(4)]),
        Case("_random_pdf_dirichlet", {}, [positive(4, 3, 2), positive(4, 2)], "n d1"),
        drawn("_npi_uniform", {"low": 0, "high": 1, "ctx": "cpu(0)", **size}, numpy=True),
        drawn("_npi_uniform", {"low": "None", "high": 2, "size": "None"}, [one], numpy=True),
        drawn("_npi_uniform_n", {"low": "None", "high": "None", "size": "(5, 2)"}, [positive(4, 1), positive(3)],
              numpy=True),
        drawn("_npi_normal", {**both, **size}, [positive(4, 1), positive(3)], numpy=True),
        drawn("_npi_normal_n", {**both, "size": "(5,)"}, [positive(4, 1), positive(3)], numpy=True),
        drawn("_npi_normal_n", {**both, "size": "None"}, [positive(4, 1), positive(3)], numpy=True),
        drawn("_npi_bernoulli", {"prob": "None", "logit": "None", "is_logit": "False", "size": "None"}, [one],
              numpy=True),
        drawn("_npi_bernoulli", {"prob": 0.5, "logit": "None", "is_logit": "False", **size}, numpy=True),
        *[drawn(f"_npi_{op}", {"scale": "None", **size}, [positive(4, 1)], numpy=True) for op in
          ("exponential", "rayleigh")],
        *[drawn(f"_npi_{op}", {"a": "None", **size}, [positive(4, 1)], numpy=True) for op in
          ("pareto", "powerd", "weibull")],
        *[drawn(f"_npi_{op}", {**both, **size}, [one, positive(3)], numpy=True) for op in ("gumbel", "logistic")],
        drawn("_npi_gamma", {"shape": "None", "scale": 1.0, **size}, [positive(4, 1)], numpy=True),
        drawn("_npi_multinomial", {"n": 5, "pvals": "None", **size}, [ratios], "n d1", numpy=True),
        drawn("_npi_choice", {"a": 5, "replace": "True", "weighted": "True", **size}, [ratios], numpy=True),
        drawn("_npi_choice", {"a": 5, "replace": "True", "weighted": "False", **size}, numpy=True),
    ]


FAMILIES = (linear_algebra, diagonals, random_numbers, wholes)
