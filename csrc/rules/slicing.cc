// Operators that take parts of a tensor: a dim of which a part is taken is
// whole, the others are factors.
#include "rules/attributes.h"
#include "rules/families.h"
#include "rules/rule_builder.h"

namespace soybean {
namespace {

Rule rule_with_whole_dims(const OperatorView& op, const DimSet& whole) {
  RuleBuilder rule(op);
  const Dims dims = rule.dim_factors(op.inputs[0].shape, whole);
  return rule.input(dims).output(dims).build();
}

// begin, end and step per leading dim. A dim is untouched when it starts at its
// first element and ends at or after its last: MXNet clamps an end that lies
// behind the dim, so that a number that is the whole extent also holds for less.
Rule slice_rule(const OperatorView& op) {
  AttributeReader attrs(op.node.attrs);
  const OptionalIntegers begin = attrs.integers_or_none("begin");
  const OptionalIntegers end = attrs.integers_or_none("end");
  const OptionalIntegers step = attrs.integers_or_none("step");
  if (attrs.failed() || !has_operands(op, 1, 1)) return Rule();
  const Shape& in = op.inputs[0].shape;
  if (begin.size() != end.size() || begin.size() > in.size()) return Rule();
  if (!step.empty() && step.size() != begin.size()) return Rule();
  DimSet whole;
  for (size_t d = 0; d < begin.size(); ++d) {
    const bool every = step.empty() || step[d].value_or(1) == 1;
    const bool from_first = begin[d].value_or(0) == 0;
    const bool to_last = end[d].value_or(in[d]) >= in[d];
    if (!every || !from_first || !to_last) whole.insert(d);
  }
  return rule_with_whole_dims(op, whole);
}

Rule slice_axis_rule(const OperatorView& op) {
  AttributeReader attrs(op.node.attrs);
  const int64_t dim = attrs.integer("axis");
  attrs.integer("begin");
  attrs.optional_integer("end");
  if (attrs.failed() || !has_operands(op, 1, 1)) return Rule();
  const auto axis = axis_index(dim, op.inputs[0].shape.size());
  if (!axis) return Rule();
  if (op.inputs[0].shape != op.outputs[0].shape) return rule_with_whole_dims(op, {*axis});
  Rule rule = rule_with_whole_dims(op, {});  // takes all that there is
  if (rule.known) rule.restated = {{"begin", "0"}, {"end", "None"}};
  return rule;
}

// The second operand gives the extents of the sliced dims, all without `axes`. Of a
// dim that is as long in both nothing is cut off.
Rule slice_like_rule(const OperatorView& op) {
  AttributeReader attrs(op.node.attrs);
  const Integers axes = attrs.integers("axes");
  if (attrs.failed() || !has_operands(op, 2, 1)) return Rule();
  const Shape& in = op.inputs[0].shape;
  const Shape& like = op.inputs[1].shape;
  const auto sliced = axis_indices(axes, in.size());
  if (!sliced || sliced->empty() || *sliced->rbegin() >= like.size()) return Rule();
  DimSet whole;
  for (size_t d : *sliced) {
    if (in[d] != like[d]) whole.insert(d);
  }
  RuleBuilder rule(op);
  const Dims dims = rule.dim_factors(in, whole);
  Dims like_dims(like.size(), kWhole);
  for (size_t d = 0; d < like.size(); ++d) {
    like_dims[d] = sliced->count(d) > 0 ? dims[d] : rule.same_factor("l" + std::to_string(d), like[d]);
  }
  return rule.input(dims).input(like_dims).output(dims).build();
}

// Several outputs, each a part of dim `axis` (which is gone when it is squeezed).
Rule split_along(const OperatorView& op, int64_t dim, bool squeeze) {
  if (op.inputs.size() != 1 || op.outputs.empty()) return Rule();
  const auto axis = axis_index(dim, op.inputs[0].shape.size());
  if (!axis) return Rule();
  RuleBuilder rule(op);
  const Dims dims = rule.dim_factors(op.inputs[0].shape, {*axis});
  Dims out = dims;
  if (squeeze) out.erase(out.begin() + static_cast<std::ptrdiff_t>(*axis));
  rule.input(dims);
  for (size_t i = 0; i < op.outputs.size(); ++i) rule.output(out);
  return rule.build();
}

Rule split_rule(const OperatorView& op) {
  AttributeReader attrs(op.node.attrs);
  const int64_t axis = attrs.integer("axis", 1);
  const bool squeeze = attrs.boolean("squeeze_axis", false);
  return attrs.failed() ? Rule() : split_along(op, axis, squeeze);
}

}  // namespace

void register_slicing_rules(RuleRegistry* registry) {
  (*registry)["slice"] = slice_rule;
  (*registry)["slice_axis"] = slice_axis_rule;
  (*registry)["slice_like"] = slice_like_rule;
  (*registry)["SliceChannel"] = split_rule;
  (*registry)["_split_v2"] = split_rule;
}

}  // namespace soybean
