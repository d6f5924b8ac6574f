// Reductions. A sum over a dim that is cut is a sum of the groups' sums, a mean their
// weighted sum, a maximum their maximum; other reductions need the whole of the dims that
// they run over.
#include "rules/attributes.h"
#include "rules/families.h"
#include "rules/rule_builder.h"

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
std::optional<Reduction> read_reduction(const OperatorView& op, const char* axis_name, bool numpy) {
  if (op.inputs.size() != 1) return std::nullopt;
  const size_t rank = op.inputs[0].shape.size();
  AttributeReader attrs(op.node.attrs);
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
  return reduction_rule(op, reduction, Kind::kWholeDims);
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
  for (const char* name : {"prod", "nanprod", "norm"}) (*registry)[name] = legacy_rule<Kind::kWholeDims>;
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
}

}  // namespace soybean
