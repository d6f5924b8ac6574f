// Operators that compute every element from the elements at the same place:
// all operands have one shape, and every dim is a factor.
#include "rules/attributes.h"
#include "rules/families.h"
#include "rules/rule_builder.h"

namespace soybean {
namespace {

Rule elementwise_rule(const OperatorView& op) {
  if (op.inputs.empty() || op.outputs.empty()) return Rule();
  RuleBuilder rule(op);
  const Dims dims = rule.dim_factors(op.outputs[0].shape);
  for (const TensorType& input : op.inputs) {
    if (input.shape != op.outputs[0].shape) return Rule();
    rule.input(dims);
  }
  for (const TensorType& output : op.outputs) {
    if (output.shape != op.outputs[0].shape) return Rule();
    rule.output(dims);
  }
  return rule.build();
}

// x / sqrt(length of the last dim)
Rule div_sqrt_dim_rule(const OperatorView& op) {
  if (!has_operands(op, 1, 1) || op.inputs[0].shape.empty()) return Rule();
  RuleBuilder rule(op);
  const Shape& shape = op.inputs[0].shape;
  const Dims dims = rule.dim_factors(shape, {shape.size() - 1});
  return rule.input(dims).output(dims).build();
}

// Only a dense tensor stays what it is in every part.
Rule cast_storage_rule(const OperatorView& op) {
  AttributeReader attrs(op.node.attrs);
  return attrs.text("stype", "") == "default" ? elementwise_rule(op) : Rule();
}

const char* const kElementwise[] = {
    // activations
    "Activation", "relu", "sigmoid", "softsign", "hard_sigmoid", "_npx_relu", "_npx_sigmoid", "erf",
    "erfinv", "smooth_l1",
    // copies, casts, and what only the backward pass sees
    "_copy", "_np_copy", "BlockGrad", "Cast", "amp_cast", "amp_multicast", "zeros_like", "ones_like",
    "_npi_full_like", "_contrib_gradientmultiplier", "_contrib_round_ste", "_contrib_sign_ste",
    "_identity_with_attr_like_rhs",
    // one operand
    "abs", "arccos", "arccosh", "arcsin", "arcsinh", "arctan", "arctanh", "cbrt", "ceil", "clip", "cos",
    "cosh", "degrees", "exp", "expm1", "fix", "floor", "gamma", "gammaln", "log", "log10", "log1p",
    "log2", "logical_not", "negative", "radians", "rcbrt", "reciprocal", "rint", "round", "rsqrt",
    "sign", "sin", "sinh", "sqrt", "square", "tan", "tanh", "trunc", "_contrib_quadratic",
    "_npi_absolute", "_npi_arccos", "_npi_arccosh", "_npi_arcsin", "_npi_arcsinh", "_npi_arctan",
    "_npi_arctanh", "_npi_around", "_npi_bitwise_not", "_npi_cbrt", "_npi_ceil", "_npi_cos",
    "_npi_cosh", "_npi_degrees", "_npi_exp", "_npi_expm1", "_npi_fix", "_npi_floor", "_npi_isfinite",
    "_npi_isinf", "_npi_isnan", "_npi_isneginf", "_npi_isposinf", "_npi_log", "_npi_log10",
    "_npi_log1p", "_npi_log2", "_npi_logical_not", "_npi_nan_to_num", "_npi_negative", "_npi_radians",
    "_npi_reciprocal", "_npi_rint", "_npi_sign", "_npi_sin", "_npi_sinh", "_npi_sqrt", "_npi_square",
    "_npi_tan", "_npi_tanh", "_npi_trunc",
    // one operand and a number
    "_plus_scalar", "_minus_scalar", "_rminus_scalar", "_mul_scalar", "_div_scalar", "_rdiv_scalar",
    "_mod_scalar", "_rmod_scalar", "_power_scalar", "_rpower_scalar", "_maximum_scalar",
    "_minimum_scalar", "_hypot_scalar", "_equal_scalar", "_not_equal_scalar", "_greater_scalar",
    "_greater_equal_scalar", "_lesser_scalar", "_lesser_equal_scalar", "_logical_and_scalar",
    "_logical_or_scalar", "_logical_xor_scalar", "_npi_add_scalar", "_npi_subtract_scalar",
    "_npi_rsubtract_scalar", "_npi_multiply_scalar", "_npi_true_divide_scalar",
    "_npi_rtrue_divide_scalar", "_npi_mod_scalar", "_npi_rmod_scalar", "_npi_power_scalar",
    "_npi_rpower_scalar", "_npi_arctan2_scalar", "_npi_rarctan2_scalar", "_npi_copysign_scalar",
    "_npi_rcopysign_scalar", "_npi_ldexp_scalar", "_npi_rldexp_scalar", "_npi_lcm_scalar",
    "_npi_bitwise_and_scalar", "_npi_bitwise_or_scalar", "_npi_bitwise_xor_scalar",
    "_npi_equal_scalar", "_npi_not_equal_scalar", "_npi_greater_scalar", "_npi_greater_equal_scalar",
    "_npi_less_scalar", "_npi_less_equal_scalar", "_npi_where_scalar2",
    // two and more operands of one shape
    "elemwise_add", "elemwise_sub", "elemwise_mul", "elemwise_div", "add_n", "_maximum", "_minimum",
    "_mod", "_power", "_hypot", "_equal", "_not_equal", "_greater", "_greater_equal", "_lesser",
    "_lesser_equal", "_logical_and", "_logical_or", "_logical_xor", "_grad_add",
    // with sparse operands of the stored elements only; those that are known here are dense
    "_scatter_elemwise_div", "_scatter_minus_scalar", "_scatter_plus_scalar",
};

}  // namespace

bool is_elementwise(const std::string& op) {
  const auto found = rule_registry().find(op);
  return found != rule_registry().end() && found->second == elementwise_rule;
}

void register_elementwise_rules(RuleRegistry* registry) {
  for (const char* name : kElementwise) (*registry)[name] = elementwise_rule;
  (*registry)["_contrib_div_sqrt_dim"] = div_sqrt_dim_rule;
  (*registry)["cast_storage"] = cast_storage_rule;
}

}  // namespace soybean
