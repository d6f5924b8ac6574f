// Reductions. A sum over a dim that is cut is a sum of the groups' sums, a mean their
// weighted sum, a maximum their maximum. A norm and the index of an extreme are written out
// where their dims are cut; other reductions need the whole of the dims that they run over.
#include "rules/attributes.h"
#include "rules/families.h"
#include "rules/rule_builder.h"
#include "rules/written_out.h"

namespace soybean {
namespace {

enum class Kind { kSum, kMean, kMax, kMin, kWholeDims };

bool is_extreme(Kind kind) { return kind == Kind::kMax || kind == Kind::kMin; }

struct Reduction {
  DimSet dims;  // reduced
  bool keepdims = false;
};

// The outputs' dims for input dims: the reduced ones are dropped or kept at
// extent 1. A full reduction has shape () or, in the legacy operators, (1,).
Dims reduced_dims(const Dims& input, const Reduction& reduction, size_t out_rank) {
  Dims out;
  for (size_t d = 0; d < input.size(); ++d) {
    const bool reduced = reduction.dims.count(d) > 0;
    if (!reduced || reduction.keepdims) out.push_back(reduced ? kWhole : input[d]);
  }
  if (out.empty() && out_rank == 1) out.push_back(kWhole);
  return out;
}

Rule reduction_rule(const OperatorView& op, const Reduction& reduction, Kind kind) {
  if (op.inputs.size() != 1 || op.outputs.empty()) return Rule();
  if (is_extreme(kind) && op.outputs[0].shape.empty()) kind = Kind::kWholeDims;  // joined along a dim
  const Shape& in = op.inputs[0].shape;
  RuleBuilder rule(op);
  Dims dims = rule.dim_factors(in, reduction.dims);
  if (kind != Kind::kWholeDims) {
    for (size_t d : reduction.dims) {
      const std::string name = d == 0 ? "n" : "d" + std::to_string(d);
      dims[d] = rule.reduced_factor(name, in[d]);
    }
  }
  if (kind == Kind::kMean) rule.average();
  if (is_extreme(kind)) rule.joined_by(kind == Kind::kMax ? "max" : "min");
  rule.input(dims);
  for (const TensorType& output : op.outputs) {
    rule.output(reduced_dims(dims, reduction, output.shape.size()));
  }
  return rule.build();
}

// A reduction that can be written out, with `count` statistics over its dims on the way.
Rule statistic_rule(const OperatorView& op, const Reduction& reduction, size_t count, bool gradient) {
  const Shape& in = op.inputs[0].shape;
  if (op.outputs[0].shape.empty()) return reduction_rule(op, reduction, Kind::kWholeDims);  // no legacy Reshape has it
  RuleBuilder rule(op);
  const Dims dims = rule.dim_factors(in);
  Shape shape = in;
  Dims left = dims;
  for (const size_t d : reduction.dims) {
    rule.takes_statistic(dims[d]);
    shape[d] = 1;
    left[d] = kWhole;
  }
  for (size_t i = 0; i < count; ++i) rule.statistics(shape, left, written_itemsize(op.inputs[0].itemsize), gradient);
  return rule.input(dims).output(reduced_dims(dims, reduction, op.outputs[0].shape.size())).build();
}

DimSet all_dims(size_t rank) {
  DimSet dims;
  for (size_t d = 0; d < rank; ++d) dims.insert(d);
  return dims;
}

DimSet other_dims(const DimSet& dims, size_t rank) {
  DimSet others;
  for (size_t d = 0; d < rank; ++d) {
    if (dims.count(d) == 0) others.insert(d);
  }
  return others;
}

// axis, keepdims, exclude. No axis is every axis; so is an empty tuple, except
// in NumPy's operators, where it is none.
std::optional<Reduction> read_reduction(const Attributes& node_attrs, size_t rank, const char* axis_name,
                                        bool numpy) {
  AttributeReader attrs(node_attrs);
  const auto axes = attrs.optional_integers(axis_name);
  const bool exclude = attrs.boolean("exclude", false);
  Reduction reduction;
  reduction.keepdims = attrs.boolean("keepdims", false);
  if (attrs.failed()) return std::nullopt;
  if (!axes || (axes->empty() && !numpy)) {
    reduction.dims = all_dims(rank);
    return reduction;
  }
  const auto dims = axis_indices(*axes, rank);
  if (!dims) return std::nullopt;
  reduction.dims = exclude ? other_dims(*dims, rank) : *dims;
  return reduction;
}

std::optional<Reduction> read_reduction(const OperatorView& op, const char* axis_name, bool numpy) {
  if (op.inputs.size() != 1) return std::nullopt;
  return read_reduction(op.node.attrs, op.inputs[0].shape.size(), axis_name, numpy);
}

template <Kind kind>
Rule legacy_rule(const OperatorView& op) {
  const auto reduction = read_reduction(op, "axis", false);
  return reduction ? reduction_rule(op, *reduction, kind) : Rule();
}

// A mean that is rounded to an integer is not the sum of its parts.
template <Kind kind>
Rule numpy_rule(const OperatorView& op) {
  const auto reduction = read_reduction(op, "axis", true);
  if (!reduction) return Rule();
  AttributeReader attrs(op.node.attrs);
  const std::string dtype = attrs.text("dtype", "None");
  const bool rounded = kind == Kind::kMean && dtype != "None" && dtype.rfind("float", 0) != 0;
  return reduction_rule(op, *reduction, rounded ? Kind::kWholeDims : kind);
}

// Mean and variance, two outputs.
Rule moments_rule(const OperatorView& op) {
  const auto reduction = read_reduction(op, "axes", false);
  return reduction ? reduction_rule(op, *reduction, Kind::kWholeDims) : Rule();
}

// The index of an extreme along one axis. Without an axis it is an index into
// the flattened tensor, which no cut keeps.
Rule arg_rule(const OperatorView& op) {
  if (op.inputs.size() != 1) return Rule();
  AttributeReader attrs(op.node.attrs);
  const auto axis = attrs.optional_integer("axis");
  Reduction reduction;
  reduction.keepdims = attrs.boolean("keepdims", false);
  if (attrs.failed() || !axis) return Rule();
  const auto dim = axis_index(*axis, op.inputs[0].shape.size());
  if (!dim) return Rule();
  reduction.dims = {*dim};
  // Indices are exact in single precision, and of the data's type but in NumPy's operators.
  const bool written = op.node.op == "argmax" || op.node.op == "argmin";
  if (written && op.inputs[0].itemsize >= 4) return statistic_rule(op, reduction, 2, false);
  return reduction_rule(op, reduction, Kind::kWholeDims);
}

// The root of the sum of squares, or the sum of absolute values.
Rule norm_rule(const OperatorView& op) {
  const auto reduction = read_reduction(op, "axis", false);
  if (!reduction || !has_operands(op, 1, 1)) return Rule();
  AttributeReader attrs(op.node.attrs);
  const bool squares = attrs.integer("ord", 2) == 2 && attrs.text("out_dtype", "None") == "None";
  if (attrs.failed()) return Rule();
  return squares ? statistic_rule(op, *reduction, 1, true) : reduction_rule(op, *reduction, Kind::kWholeDims);
}

// average: the weights have the data's dims or, for one axis, run along it. A second output
// is the sum of the weights, a number where they run along one axis.
Rule average_rule(const OperatorView& op) {
  AttributeReader attrs(op.node.attrs);
  const bool weighted = attrs.boolean("weighted", true);
  if (attrs.failed() || op.outputs.empty() || op.inputs.size() != (weighted ? 2u : 1u)) return Rule();
  const auto reduction = read_reduction(op.node.attrs, op.inputs[0].shape.size(), "axis", true);
  if (!reduction) return Rule();
  const Shape& in = op.inputs[0].shape;
  RuleBuilder rule(op);
  // Every output has the factors of the first: where the other is one number, there are none.
  DimSet whole = reduction->dims;
  if (op.outputs.size() > 1 && op.outputs[1].shape != op.outputs[0].shape) whole = all_dims(in.size());
  const Dims dims = rule.dim_factors(in, whole);
  rule.input(dims);
  if (weighted) rule.input(op.inputs[1].shape == in ? dims : Dims(op.inputs[1].shape.size(), kWhole));
  rule.output(reduced_dims(dims, *reduction, op.outputs[0].shape.size()));
  for (size_t i = 1; i < op.outputs.size(); ++i) {
    rule.output(op.outputs[i].shape == op.outputs[0].shape ? reduced_dims(dims, *reduction, op.outputs[i].shape.size())
                                                           : Dims(op.outputs[i].shape.size(), kWhole));
  }
  return rule.build();
}

// percentile: one result for each of the percentiles, which come first.
Rule percentile_rule(const OperatorView& op) {
  if (op.inputs.empty() || op.inputs.size() > 2 || op.outputs.size() != 1) return Rule();
  const auto reduction = read_reduction(op.node.attrs, op.inputs[0].shape.size(), "axis", true);
  if (!reduction) return Rule();
  RuleBuilder rule(op);
  const Dims dims = rule.dim_factors(op.inputs[0].shape, reduction->dims);
  rule.input(dims);
  Dims out;
  if (op.inputs.size() == 2) {
    for (size_t d = 0; d < op.inputs[1].shape.size(); ++d) {
      out.push_back(rule.factor("q" + std::to_string(d), op.inputs[1].shape[d]));
    }
    rule.input(out);
  }
  const Dims rest = reduced_dims(dims, *reduction, 0);
  out.insert(out.end(), rest.begin(), rest.end());
  return rule.output(out).build();
}

// The sum of squares of one tensor; of several tensors the sums are in one vector, and a
// part of one of them would add to the others, too.
Rule sum_of_squares_rule(const OperatorView& op) {
  if (!has_operands(op, 1, 1)) return Rule();
  Reduction reduction;
  reduction.dims = all_dims(op.inputs[0].shape.size());
  return reduction_rule(op, reduction, Kind::kSum);
}

Rule argmax_channel_rule(const OperatorView& op) {
  if (op.inputs.size() != 1 || op.inputs[0].shape.size() < 2) return Rule();
  Reduction reduction;
  reduction.dims = {1};
  return reduction_rule(op, reduction, Kind::kWholeDims);
}

}  // namespace

void register_reduction_rules(RuleRegistry* registry) {
  (*registry)["sum"] = legacy_rule<Kind::kSum>;
  (*registry)["nansum"] = legacy_rule<Kind::kSum>;
  (*registry)["mean"] = legacy_rule<Kind::kMean>;
  (*registry)["max"] = legacy_rule<Kind::kMax>;
  (*registry)["min"] = legacy_rule<Kind::kMin>;
  (*registry)["norm"] = norm_rule;
  for (const char* name : {"prod", "nanprod"}) (*registry)[name] = legacy_rule<Kind::kWholeDims>;
  (*registry)["_np_sum"] = numpy_rule<Kind::kSum>;
  (*registry)["_npi_mean"] = numpy_rule<Kind::kMean>;
  (*registry)["_np_max"] = numpy_rule<Kind::kMax>;
  (*registry)["_np_min"] = numpy_rule<Kind::kMin>;
  for (const char* name :
       {"_np_prod", "_np_all", "_np_any", "_npi_std", "_npi_var"}) {
    (*registry)[name] = numpy_rule<Kind::kWholeDims>;
  }
  (*registry)["moments"] = moments_rule;
  for (const char* name : {"argmax", "argmin", "_npi_argmax", "_npi_argmin"}) {
    (*registry)[name] = arg_rule;
  }
  (*registry)["argmax_channel"] = argmax_channel_rule;
  (*registry)["_npi_average"] = average_rule;
  (*registry)["_npi_percentile"] = percentile_rule;
  (*registry)["_npi_norm"] = numpy_rule<Kind::kWholeDims>;
  (*registry)["multi_sum_sq"] = sum_of_squares_rule;
}

}  // namespace soybean
