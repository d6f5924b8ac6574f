// Operators that broadcast: operands are aligned at their last dims, and an
// operand of extent 1 (or without the dim) is used whole by every group.
#include <cmath>

#include "rules/attributes.h"
#include "rules/families.h"
#include "rules/rule_builder.h"

namespace soybean {
namespace {

// The dims of an operand that is broadcast to `out`; kWhole where it is repeated.
Dims broadcast_dims(const Shape& shape, const Shape& out, const Dims& out_dims) {
  Dims dims;
  const size_t missing = out.size() - shape.size();
  for (size_t d = 0; d < shape.size(); ++d) {
    dims.push_back(shape[d] == out[missing + d] ? out_dims[missing + d] : kWhole);
  }
  return dims;
}

bool broadcasts_to(const Shape& shape, const Shape& out) {
  if (shape.size() > out.size()) return false;
  const size_t missing = out.size() - shape.size();
  for (size_t d = 0; d < shape.size(); ++d) {
    if (shape[d] != 1 && shape[d] != out[missing + d]) return false;
  }
  return true;
}

Rule broadcast_rule(const OperatorView& op) {
  if (op.outputs.size() != 1) return Rule();
  RuleBuilder rule(op);
  const Shape& out = op.outputs[0].shape;
  const Dims dims = rule.dim_factors(out);
  for (const TensorType& input : op.inputs) {
    if (!broadcasts_to(input.shape, out)) return Rule();
    rule.input(broadcast_dims(input.shape, out, dims));
  }
  return rule.output(dims).build();
}

Rule broadcast_to_rule(const OperatorView& op) {
  if (!has_operands(op, 1, 1)) return Rule();
  AttributeReader attrs(op.node.attrs);
  attrs.integers("shape");
  if (attrs.failed()) return Rule();
  Rule rule = broadcast_rule(op);
  if (rule.known) rule.shape_attrs["shape"] = ShapePart();
  return rule;
}

// Of repeated dims `size` states the extents: one alone is a factor, several are whole.
Rule broadcast_axis_rule(const OperatorView& op) {
  if (!has_operands(op, 1, 1)) return Rule();
  const Shape& in = op.inputs[0].shape;
  const Shape& out = op.outputs[0].shape;
  AttributeReader attrs(op.node.attrs);
  const auto axes = axis_indices(attrs.integers("axis"), in.size());
  if (attrs.failed() || !axes || in.size() != out.size()) return Rule();
  for (size_t d = 0; d < in.size(); ++d) {
    if (axes->count(d) == 0 && in[d] != out[d]) return Rule();
  }
  RuleBuilder rule(op);
  const Dims dims = rule.dim_factors(out, axes->size() == 1 ? DimSet{} : *axes);
  Dims in_dims = dims;
  for (size_t d : *axes) in_dims[d] = kWhole;
  if (axes->size() == 1) rule.extent_attr("size", dims[*axes->begin()]);
  return rule.input(in_dims).output(dims).build();
}

// Dims of lhs of extent 1 take the extents of dims of rhs, of which nothing else counts.
Rule broadcast_like_by_axes(const OperatorView& op, const Integers& lhs_axes, const Integers& rhs_axes) {
  const Shape& lhs = op.inputs[0].shape;
  const Shape& rhs = op.inputs[1].shape;
  if (lhs_axes.size() != rhs_axes.size() || op.outputs[0].shape.size() != lhs.size()) return Rule();
  if (!axis_indices(lhs_axes, lhs.size()) || !axis_indices(rhs_axes, rhs.size())) return Rule();
  RuleBuilder rule(op);
  const Dims dims = rule.dim_factors(op.outputs[0].shape);
  Dims lhs_dims = dims, rhs_dims(rhs.size(), kWhole);
  for (size_t i = 0; i < lhs_axes.size(); ++i) {
    const size_t dim = *axis_index(lhs_axes[i], lhs.size());
    if (lhs[dim] != 1) return Rule();
    lhs_dims[dim] = kWhole;
    rhs_dims[*axis_index(rhs_axes[i], rhs.size())] = dims[dim];
  }
  for (size_t d = 0; d < rhs.size(); ++d) {
    if (rhs_dims[d] == kWhole) rhs_dims[d] = rule.same_factor("l" + std::to_string(d), rhs[d]);
  }
  return rule.input(lhs_dims).input(rhs_dims).output(dims).build();
}

// lhs takes the shape of rhs.
Rule broadcast_like_rule(const OperatorView& op) {
  if (!has_operands(op, 2, 1)) return Rule();
  AttributeReader attrs(op.node.attrs);
  const auto lhs_axes = attrs.optional_integers("lhs_axes");
  const auto rhs_axes = attrs.optional_integers("rhs_axes");
  if (attrs.failed() || lhs_axes.has_value() != rhs_axes.has_value()) return Rule();
  if (lhs_axes) return broadcast_like_by_axes(op, *lhs_axes, *rhs_axes);
  if (op.inputs[1].shape != op.outputs[0].shape) return Rule();
  return broadcast_rule(op);
}

// A condition of one dim chooses whole rows.
Rule where_rule(const OperatorView& op) {
  if (!has_operands(op, 3, 1)) return Rule();
  const Shape& condition = op.inputs[0].shape;
  const Shape& out = op.outputs[0].shape;
  if (condition.empty() || out.empty() || condition[0] != out[0]) return Rule();
  if (condition != out && condition.size() != 1) return Rule();
  RuleBuilder rule(op);
  const Dims dims = rule.dim_factors(out);
  rule.input(condition == out ? dims : Dims{dims[0]});
  return rule.input(dims).input(dims).output(dims).build();
}

// polyval(coefficients, x): each element of x for itself.
Rule polynomial_rule(const OperatorView& op) {
  if (!has_operands(op, 2, 1)) return Rule();
  RuleBuilder rule(op);
  const Dims dims = rule.dim_factors(op.inputs[1].shape);
  return rule.input(Dims(op.inputs[0].shape.size(), kWhole)).input(dims).output(dims).build();
}

// A constant tensor, which has no operand at all. In a graph MXNet makes it on the
// device of the node, whatever `ctx` says (that NumPy's functions always write).
Rule constant_rule(const OperatorView& op) {
  if (!has_operands(op, 0, 1)) return Rule();
  AttributeReader attrs(op.node.attrs);
  attrs.integers("shape");
  if (attrs.failed()) return Rule();
  RuleBuilder rule(op);
  rule.output(rule.dim_factors(op.outputs[0].shape));
  return rule.shape_attr("shape", 0).build();
}

// start, start + step, ... along one dim of an operand, of which only the extent counts.
Rule arange_like_rule(const OperatorView& op) {
  AttributeReader attrs(op.node.attrs);
  const auto dim = attrs.optional_integer("axis");
  const double start = attrs.number("start", 0);
  const double step = attrs.number("step", 1);
  const int64_t repeat = attrs.integer("repeat", 1);
  if (attrs.failed() || !dim || repeat != 1 || !has_operands(op, 1, 1)) return Rule();
  const Shape& in = op.inputs[0].shape;
  const auto axis = axis_index(*dim, in.size());
  if (!axis) return Rule();
  RuleBuilder rule(op);
  Dims dims;
  for (size_t d = 0; d < in.size(); ++d) {
    const std::string name = d == 0 ? "n" : "d" + std::to_string(d);
    dims.push_back(d == *axis ? rule.factor(name, in[d]) : rule.same_factor(name, in[d]));
  }
  rule.start_attr("start", dims[*axis], start, step);
  return rule.input(dims).output({dims[*axis]}).build();
}

// start, start + step, ... of whole numbers, of which every group makes its own exactly.
Rule arange_rule(const OperatorView& op) {
  if (!has_operands(op, 0, 1) || op.outputs[0].shape.size() != 1) return Rule();
  AttributeReader attrs(op.node.attrs);
  const double first = attrs.number("start", 0), step = attrs.number("step", 1);
  const int64_t repeat = attrs.integer("repeat", 1);
  if (attrs.failed()) return Rule();
  const bool stated = attrs.has("stop") && attrs.text("stop", "None") != "None";  // or it counts from 0 to `start`
  const double most = 1 << 24;  // what single precision has every whole number below
  const auto exact = [&](double value) { return value == std::floor(value) && std::fabs(value) < most; };
  const double extent = static_cast<double>(op.outputs[0].shape[0]);
  RuleBuilder rule(op);
  if (repeat != 1 || !exact(first) || !exact(step) || !exact(step * extent) || !exact(first + step * extent)) {
    return rule.output({kWhole}).build();
  }
  const int n = rule.factor("n", op.outputs[0].shape[0]);
  const double begin = stated ? first : 0;
  rule.start_attr("start", n, begin, step).stop_attr("stop", n, begin, step);
  return rule.output({n}).build();
}

// eye, identity: row i is 1 in column i + k, for a group that begins at row b i + b + k.
Rule eye_rule(const OperatorView& op) {
  if (!has_operands(op, 0, 1) || op.outputs[0].shape.size() != 2) return Rule();
  AttributeReader attrs(op.node.attrs);
  const int64_t k = attrs.integer("k", 0);
  if (attrs.failed()) return Rule();
  const Shape& out = op.outputs[0].shape;
  RuleBuilder rule(op);
  const int n = rule.factor("n", out[0]);
  rule.output({n, kWhole}).extent_attr("N", n).restate("M", std::to_string(out[1]));
  rule.start_attr("k", n, static_cast<double>(k), 1);
  if (attrs.has("shape")) {
    rule.runs_as("_npi_eye").restate("dtype", attrs.text("dtype", "float32"));
  }
  return rule.build();
}

// Constants with another value at every place, which attributes state as a whole:
// every group makes all of it.
Rule whole_constant_rule(const OperatorView& op) {
  if (!has_operands(op, 0, 1)) return Rule();
  RuleBuilder rule(op);
  return rule.output(Dims(op.outputs[0].shape.size(), kWhole)).build();
}

const char* const kBroadcast[] = {
    "broadcast_add", "broadcast_sub", "broadcast_mul", "broadcast_div", "broadcast_mod",
    "broadcast_power", "broadcast_maximum", "broadcast_minimum", "broadcast_hypot", "broadcast_equal",
    "broadcast_not_equal", "broadcast_greater", "broadcast_greater_equal", "broadcast_lesser",
    "broadcast_lesser_equal", "broadcast_logical_and", "broadcast_logical_or", "broadcast_logical_xor",
    "_npi_add", "_npi_subtract", "_npi_multiply", "_npi_true_divide", "_npi_mod", "_npi_power",
    "_npi_arctan2", "_npi_hypot", "_npi_copysign", "_npi_ldexp", "_npi_lcm", "_npi_bitwise_and",
    "_npi_bitwise_or", "_npi_bitwise_xor", "_npi_equal", "_npi_not_equal", "_npi_greater",
    "_npi_greater_equal", "_npi_less", "_npi_less_equal", "_npi_where", "_npi_where_lscalar",
    "_npi_where_rscalar",
};

}  // namespace

bool is_broadcasting(const std::string& op) {
  const auto found = rule_registry().find(op);
  return found != rule_registry().end() && found->second == broadcast_rule;
}

void register_broadcast_rules(RuleRegistry* registry) {
  for (const char* name : kBroadcast) (*registry)[name] = broadcast_rule;
  (*registry)["broadcast_to"] = broadcast_to_rule;
  (*registry)["_npi_broadcast_to"] = broadcast_to_rule;
  (*registry)["broadcast_axis"] = broadcast_axis_rule;
  (*registry)["broadcast_like"] = broadcast_like_rule;
  (*registry)["where"] = where_rule;
  (*registry)["_npi_polyval"] = polynomial_rule;
  (*registry)["_contrib_arange_like"] = arange_like_rule;
  for (const char* name : {"_zeros", "_ones", "_full", "_npi_zeros", "_npi_ones", "_zeros_without_dtype"}) {
    (*registry)[name] = constant_rule;
  }
  for (const char* name : {"_arange", "_npi_arange"}) (*registry)[name] = arange_rule;
  for (const char* name : {"_eye", "_npi_eye", "_npi_identity"}) (*registry)[name] = eye_rule;
  for (const char* name : {"_linspace", "_npi_blackman", "_npi_hamming", "_npi_hanning", "_npi_indices",
                           "_npi_logspace"}) {
    (*registry)[name] = whole_constant_rule;
  }
}

}  // namespace soybean
