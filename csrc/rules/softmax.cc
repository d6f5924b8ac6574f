// softmax, log_softmax, softmin: every dim is a factor. Where the normalised one is cut,
// the groups join the maximum and the sum of each row.
#include "rules/attributes.h"
#include "rules/families.h"
#include "rules/rule_builder.h"
#include "rules/written_out.h"

namespace soybean {
namespace {

// Maximum and sum along a dim, one after the other.
void normalise(const OperatorView& op, const Dims& dims, size_t dim, RuleBuilder* rule) {
  Shape rows = op.inputs[0].shape;
  Dims row_dims = dims;
  rule->takes_statistic(dims[dim]);
  rows[dim] = 1;
  row_dims[dim] = kWhole;
  const int itemsize = written_itemsize(op.inputs[0].itemsize);
  rule->statistics(rows, row_dims, itemsize, false).statistics(rows, row_dims, itemsize);
}

// With use_length, length[dims without the axis] says how much of each row counts.
Rule softmax_rule(const OperatorView& op) {
  AttributeReader attrs(op.node.attrs);
  const int64_t dim = attrs.integer("axis", -1);
  const bool use_length = attrs.boolean("use_length", false);
  if (attrs.failed() || !has_operands(op, use_length ? 2 : 1, 1)) return Rule();
  const auto axis = axis_index(dim, op.inputs[0].shape.size());
  if (!axis) return Rule();
  RuleBuilder rule(op);
  const Dims dims = rule.dim_factors(op.inputs[0].shape, use_length ? DimSet{*axis} : DimSet{});
  if (!use_length) normalise(op, dims, *axis, &rule);
  Dims length = dims;
  length.erase(length.begin() + static_cast<std::ptrdiff_t>(*axis));
  rule.input(dims);
  if (use_length) rule.input(length);
  return rule.output(dims).build();
}

// The older operator: over all dims but the first, or over the channels. Of several dims
// MXNet 1.9.1 normalises the last alone, but not so in its gradient: they are whole.
Rule softmax_activation_rule(const OperatorView& op) {
  AttributeReader attrs(op.node.attrs);
  const std::string mode = attrs.text("mode", "instance");
  if (!has_operands(op, 1, 1) || op.inputs[0].shape.size() < 2) return Rule();
  if (mode != "instance" && mode != "channel") return Rule();
  const Shape& data = op.inputs[0].shape;
  DimSet whole;
  for (size_t d = 1; d < data.size() && mode == "instance" && data.size() > 2; ++d) whole.insert(d);
  RuleBuilder rule(op);
  const Dims dims = rule.dim_factors(data, whole);
  if (whole.empty()) normalise(op, dims, 1, &rule);
  return rule.input(dims).output(dims).build();
}

}  // namespace

void register_softmax_rules(RuleRegistry* registry) {
  for (const char* name : {"softmax", "log_softmax", "softmin"}) (*registry)[name] = softmax_rule;
  (*registry)["SoftmaxActivation"] = softmax_activation_rule;
}

}  // namespace soybean
