// softmax, log_softmax, softmin: the normalised dim is whole, every other one a
// factor.
#include "rules/attributes.h"
#include "rules/families.h"
#include "rules/rule_builder.h"

namespace soybean {
namespace {

// With use_length, length[dims without the axis] says how much of each row counts.
Rule softmax_rule(const OperatorView& op) {
  AttributeReader attrs(op.node.attrs);
  const int64_t dim = attrs.integer("axis", -1);
  const bool use_length = attrs.boolean("use_length", false);
  if (attrs.failed() || !has_operands(op, use_length ? 2 : 1, 1)) return Rule();
  const auto axis = axis_index(dim, op.inputs[0].shape.size());
  if (!axis) return Rule();
  RuleBuilder rule(op);
  const Dims dims = rule.dim_factors(op.inputs[0].shape, {*axis});
  Dims length = dims;
  length.erase(length.begin() + static_cast<std::ptrdiff_t>(*axis));
  rule.input(dims);
  if (use_length) rule.input(length);
  return rule.output(dims).build();
}

// The older operator: over all dims but the first, or over the channels.
Rule softmax_activation_rule(const OperatorView& op) {
  AttributeReader attrs(op.node.attrs);
  const std::string mode = attrs.text("mode", "instance");
  if (!has_operands(op, 1, 1) || op.inputs[0].shape.size() < 2) return Rule();
  if (mode != "instance" && mode != "channel") return Rule();
  const Shape& data = op.inputs[0].shape;
  DimSet whole = {1};
  for (size_t d = 2; d < data.size() && mode == "instance"; ++d) whole.insert(d);
  RuleBuilder rule(op);
  const Dims dims = rule.dim_factors(data, whole);
  return rule.input(dims).output(dims).build();
}

}  // namespace

void register_softmax_rules(RuleRegistry* registry) {
  for (const char* name : {"softmax", "log_softmax", "softmin"}) (*registry)[name] = softmax_rule;
  (*registry)["SoftmaxActivation"] = softmax_activation_rule;
}

}  // namespace soybean
