// Operators that join tensors along a dim, or lengthen one tensor along a dim.
// The joined dim is whole; the others are cut alike in all operands.
#include <functional>

#include "rules/attributes.h"
#include "rules/families.h"
#include "rules/rule_builder.h"

namespace soybean {
namespace {

// Joins tensors along dim `axis`, in which alone they may differ. `more` adds to the rule.
Rule concat_along(const OperatorView& op, size_t axis,
                  const std::function<void(RuleBuilder*)>& more = [](RuleBuilder*) {}) {
  RuleBuilder rule(op);
  const Dims dims = rule.dim_factors(op.outputs[0].shape, {axis});
  for (size_t i = 0; i < op.inputs.size(); ++i) rule.input(dims);
  more(&rule);
  return rule.output(dims).build();
}

// Joins tensors along a new dim `axis` of the output.
Rule stack_along(const OperatorView& op, size_t axis) {
  RuleBuilder rule(op);
  const Dims out = rule.dim_factors(op.outputs[0].shape, {axis});
  Dims in = out;
  in.erase(in.begin() + static_cast<std::ptrdiff_t>(axis));
  for (size_t i = 0; i < op.inputs.size(); ++i) rule.input(in);
  return rule.output(out).build();
}

bool joins(const OperatorView& op) { return !op.inputs.empty() && op.outputs.size() == 1; }

Rule concat_rule(const OperatorView& op) {
  AttributeReader attrs(op.node.attrs);
  const int64_t dim = attrs.integer("dim", 1);
  if (attrs.failed() || !joins(op)) return Rule();
  const auto axis = axis_index(dim, op.outputs[0].shape.size());
  if (!axis) return Rule();
  // oneDNN's Concat takes views that it cannot read, and its backward pass crashes on
  // pieces of few channels: MXNet 1.9.1 joins NumPy's way without it.
  return concat_along(op, *axis, [&](RuleBuilder* rule) {
    rule->runs_as("_npi_concatenate")
        .restate("axis", std::to_string(*axis))
        .restate("num_args", std::to_string(op.inputs.size()));
  });
}

// Without an axis the operands are flattened first, which no cut keeps.
Rule numpy_concatenate_rule(const OperatorView& op) {
  AttributeReader attrs(op.node.attrs);
  const auto dim = attrs.optional_integer(attrs.has("axis") ? "axis" : "dim");
  if (attrs.failed() || !dim || !joins(op)) return Rule();
  const auto axis = axis_index(*dim, op.outputs[0].shape.size());
  return axis ? concat_along(op, *axis) : Rule();
}

Rule stack_rule(const OperatorView& op) {
  AttributeReader attrs(op.node.attrs);
  const int64_t dim = attrs.integer("axis", 0);
  if (attrs.failed() || !joins(op)) return Rule();
  const auto axis = axis_index(dim, op.outputs[0].shape.size());
  return axis ? stack_along(op, *axis) : Rule();
}

bool all_have_rank_above(const OperatorView& op, size_t rank) {
  for (const TensorType& input : op.inputs) {
    if (input.shape.size() <= rank) return false;
  }
  return joins(op) && op.outputs[0].shape.size() > rank;
}

// vstack, hstack, dstack of tensors that already have the joined dim.
template <size_t axis>
Rule numpy_stack_rule(const OperatorView& op) {
  return all_have_rank_above(op, axis) && all_have_rank_above(op, 1) ? concat_along(op, axis) : Rule();
}

// column_stack: vectors become columns, tensors are joined along dim 1.
Rule column_stack_rule(const OperatorView& op) {
  if (!joins(op) || op.outputs[0].shape.size() < 2) return Rule();
  RuleBuilder rule(op);
  const Dims dims = rule.dim_factors(op.outputs[0].shape, {1});
  for (const TensorType& input : op.inputs) rule.input(input.shape.size() == 1 ? Dims{dims[0]} : dims);
  return rule.output(dims).build();
}

// Every element of dim `axis` becomes a block of `repeats`.
Rule repeat_rule(const OperatorView& op) {
  AttributeReader attrs(op.node.attrs);
  const auto dim = attrs.optional_integer("axis");
  attrs.integer("repeats");
  if (attrs.failed() || !dim || !has_operands(op, 1, 1)) return Rule();
  if (!axis_index(*dim, op.inputs[0].shape.size())) return Rule();
  RuleBuilder rule(op);
  const Dims dims = rule.dim_factors(op.inputs[0].shape);
  return rule.input(dims).output(dims).build();
}

// The whole tensor again and again: only a dim that stays as long can be cut.
Rule tile_rule(const OperatorView& op) {
  AttributeReader attrs(op.node.attrs);
  Integers reps = attrs.integers("reps");
  if (attrs.failed() || !has_operands(op, 1, 1)) return Rule();
  const Shape& in = op.inputs[0].shape;
  const Shape& out = op.outputs[0].shape;
  if (out.size() < in.size() || reps.size() > out.size()) return Rule();
  reps.insert(reps.begin(), out.size() - reps.size(), 1);
  const size_t added = out.size() - in.size();
  DimSet whole;
  for (size_t d = 0; d < out.size(); ++d) {
    if (d < added || reps[d] != 1) whole.insert(d);
  }
  RuleBuilder rule(op);
  const Dims dims = rule.dim_factors(out, whole);
  return rule.input(Dims(dims.begin() + static_cast<std::ptrdiff_t>(added), dims.end())).output(dims).build();
}

// pad_width is (before, after) for each dim.
Rule pad_rule(const OperatorView& op) {
  AttributeReader attrs(op.node.attrs);
  const Integers width = attrs.flattened_integers("pad_width");
  if (attrs.failed() || !has_operands(op, 1, 1)) return Rule();
  const Shape& in = op.inputs[0].shape;
  if (width.size() != 2 * in.size()) return Rule();
  DimSet whole;
  for (size_t d = 0; d < in.size(); ++d) {
    if (width[2 * d] != 0 || width[2 * d + 1] != 0) whole.insert(d);
  }
  RuleBuilder rule(op);
  const Dims dims = rule.dim_factors(in, whole);
  return rule.input(dims).output(dims).build();
}

}  // namespace

void register_joining_rules(RuleRegistry* registry) {
  (*registry)["Concat"] = concat_rule;
  (*registry)["_npi_concatenate"] = numpy_concatenate_rule;
  (*registry)["stack"] = stack_rule;
  (*registry)["_npi_stack"] = stack_rule;
  (*registry)["_npi_vstack"] = numpy_stack_rule<0>;
  (*registry)["_npi_hstack"] = numpy_stack_rule<1>;
  (*registry)["_npi_dstack"] = numpy_stack_rule<2>;
  (*registry)["_npi_column_stack"] = column_stack_rule;
  (*registry)["repeat"] = repeat_rule;
  (*registry)["tile"] = tile_rule;
  (*registry)["Pad"] = pad_rule;
  (*registry)["_npi_pad"] = pad_rule;
}

}  // namespace soybean
