// Operators that take parts of a tensor, or put parts into one: a dim of which a part is
// taken or given is whole, the others are factors.
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

// The dims of which begin, end and step (per leading dim) take a part. A dim is untouched
// when it starts at its first element and ends at or after its last: MXNet clamps an end
// that lies behind the dim, so that a number that is the whole extent also holds for less.
std::optional<DimSet> sliced_dims(const OperatorView& op) {
  AttributeReader attrs(op.node.attrs);
  const OptionalIntegers begin = attrs.integers_or_none("begin");
  const OptionalIntegers end = attrs.integers_or_none("end");
  const OptionalIntegers step = attrs.integers_or_none("step");
  if (attrs.failed() || op.inputs.empty()) return std::nullopt;
  const Shape& in = op.inputs[0].shape;
  if (begin.size() != end.size() || begin.size() > in.size()) return std::nullopt;
  if (!step.empty() && step.size() != begin.size()) return std::nullopt;
  DimSet whole;
  for (size_t d = 0; d < begin.size(); ++d) {
    const bool every = step.empty() || step[d].value_or(1) == 1;
    const bool from_first = begin[d].value_or(0) == 0;
    const bool to_last = end[d].value_or(in[d]) >= in[d];
    if (!every || !from_first || !to_last) whole.insert(d);
  }
  return whole;
}

Rule slice_rule(const OperatorView& op) {
  const auto whole = sliced_dims(op);
  return whole && has_operands(op, 1, 1) ? rule_with_whole_dims(op, *whole) : Rule();
}

// The first operand with a number, or with the second operand, in place of a slice.
Rule slice_assign_rule(const OperatorView& op) {
  const auto whole = sliced_dims(op);
  if (!whole || op.inputs.size() > 2 || op.outputs.size() != 1) return Rule();
  RuleBuilder rule(op);
  const Dims dims = rule.dim_factors(op.inputs[0].shape, *whole);
  for (size_t i = 0; i < op.inputs.size(); ++i) rule.input(dims);
  return rule.output(dims).build();
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

// hsplit, dsplit: along dim 1 (of a vector dim 0) and dim 2, whatever `axis` says.
template <size_t axis>
Rule numpy_split_rule(const OperatorView& op) {
  if (op.inputs.empty()) return Rule();
  return split_along(op, op.inputs[0].shape.size() == 1 ? 0 : axis, false);
}

// insert: values among the elements along `axis`, where `indices` operands may say. The
// values are one number, or `fits` the tensor along the other dims.
Rule insert(const OperatorView& op, size_t indices, bool fits) {
  AttributeReader attrs(op.node.attrs);
  const auto dim = attrs.optional_integer("axis");
  if (attrs.failed() || !dim || !has_operands(op, 2 + indices, 1)) return Rule();
  const Shape& in = op.inputs[0].shape;
  const Shape& values = op.inputs[1].shape;
  const auto axis = axis_index(*dim, in.size());
  if (!axis) return Rule();
  RuleBuilder rule(op);
  const Dims dims = rule.dim_factors(in, {*axis});
  Dims value_dims(values.size(), kWhole);
  for (size_t d = 0; d < values.size(); ++d) {
    if (values[d] == 1) continue;
    if (!fits || values.size() != in.size()) return Rule();
    if (d != *axis && values[d] != in[d]) return Rule();
    value_dims[d] = dims[d];
  }
  rule.input(dims).input(value_dims);
  for (size_t i = 0; i < indices; ++i) rule.input(Dims(op.inputs[2 + i].shape.size(), kWhole));
  return rule.output(dims).build();
}

// With one index MXNet turns the values' dims around it.
Rule insert_scalar_rule(const OperatorView& op) { return insert(op, 0, false); }
Rule insert_slice_rule(const OperatorView& op) { return insert(op, 0, true); }
Rule insert_tensor_rule(const OperatorView& op) { return insert(op, 1, true); }

}  // namespace

void register_slicing_rules(RuleRegistry* registry) {
  (*registry)["slice"] = slice_rule;
  (*registry)["slice_axis"] = slice_axis_rule;
  (*registry)["slice_like"] = slice_like_rule;
  (*registry)["SliceChannel"] = split_rule;
  (*registry)["_split_v2"] = split_rule;
  (*registry)["_npi_hsplit"] = numpy_split_rule<1>;
  (*registry)["_npi_dsplit"] = numpy_split_rule<2>;
  for (const char* name : {"_slice_assign", "_slice_assign_scalar"}) (*registry)[name] = slice_assign_rule;
  (*registry)["_npi_insert_scalar"] = insert_scalar_rule;
  (*registry)["_npi_insert_slice"] = insert_slice_rule;
  (*registry)["_npi_insert_tensor"] = insert_tensor_rule;
}

}  // namespace soybean
