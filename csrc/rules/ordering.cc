// Operators that reorder, accumulate or rank the elements along one dim, which
// is whole; every other dim is a factor.
#include "rules/attributes.h"
#include "rules/families.h"
#include "rules/rule_builder.h"

namespace soybean {
namespace {

Rule along_dims(const OperatorView& op, const DimSet& whole) {
  if (op.inputs.size() != 1 || op.outputs.empty()) return Rule();
  RuleBuilder rule(op);
  const Dims dims = rule.dim_factors(op.inputs[0].shape, whole);
  rule.input(dims);
  for (size_t i = 0; i < op.outputs.size(); ++i) rule.output(dims);
  return rule.build();
}

// Without an axis the tensor is flattened, which no cut keeps.
Rule along_optional_axis(const OperatorView& op, const std::optional<int64_t>& axis) {
  if (!axis || op.inputs.size() != 1) return Rule();
  const auto dim = axis_index(*axis, op.inputs[0].shape.size());
  return dim ? along_dims(op, {*dim}) : Rule();
}

// sort, argsort, topk, diff: the last dim by default
Rule last_axis_rule(const OperatorView& op) {
  AttributeReader attrs(op.node.attrs);
  std::optional<int64_t> axis = -1;
  if (attrs.has("axis")) axis = attrs.optional_integer("axis");
  return attrs.failed() ? Rule() : along_optional_axis(op, axis);
}

Rule cumsum_rule(const OperatorView& op) {
  AttributeReader attrs(op.node.attrs);
  const auto axis = attrs.optional_integer("axis");
  return attrs.failed() ? Rule() : along_optional_axis(op, axis);
}

// reverse, roll: over several dims
Rule along_axes_rule(const OperatorView& op) {
  AttributeReader attrs(op.node.attrs);
  const auto axes = attrs.optional_integers("axis");
  if (attrs.failed() || !axes || op.inputs.size() != 1) return Rule();
  const size_t rank = op.inputs[0].shape.size();
  DimSet whole;
  for (int64_t axis : *axes) {  // an axis may be rolled twice
    const auto dim = axis_index(axis, rank);
    if (!dim) return Rule();
    whole.insert(*dim);
  }
  return whole.empty() ? Rule() : along_dims(op, whole);
}

// rot90: the plane of two axes is turned, which exchanges them for odd k.
Rule rotation_rule(const OperatorView& op) {
  AttributeReader attrs(op.node.attrs);
  const auto axes = attrs.optional_integers("axes");
  if (attrs.failed() || !axes || axes->size() != 2 || !has_operands(op, 1, 1)) return Rule();
  const auto plane = axis_indices(*axes, op.inputs[0].shape.size());
  return plane ? along_dims(op, *plane) : Rule();
}

}  // namespace

void register_ordering_rules(RuleRegistry* registry) {
  for (const char* name : {"sort", "argsort", "topk", "_npi_diff"}) (*registry)[name] = last_axis_rule;
  (*registry)["_np_cumsum"] = cumsum_rule;
  (*registry)["_npi_rot90"] = rotation_rule;
  for (const char* name : {"reverse", "_npi_flip", "_np_roll"}) (*registry)[name] = along_axes_rule;
}

}  // namespace soybean
