// Dropout, and LeakyReLU in its variants.
#include "rules/attributes.h"
#include "rules/families.h"
#include "rules/rule_builder.h"

namespace soybean {
namespace {

// Along the dims of `axes` one mask is shared.
Rule dropout_rule(const OperatorView& op) {
  AttributeReader attrs(op.node.attrs);
  const Integers axes = attrs.integers("axes");
  const std::string mode = attrs.text("mode", "training");
  if (attrs.failed() || !has_operands(op, 1, 1)) return Rule();
  const auto shared = axis_indices(axes, op.inputs[0].shape.size());
  if (!shared || (mode != "training" && mode != "always")) return Rule();
  const bool drops = op.training || mode == "always";
  RuleBuilder rule(op);
  if (drops) rule.random();
  const Dims dims = rule.dim_factors(op.inputs[0].shape, drops ? *shared : DimSet{});
  return rule.input(dims).output(dims).build();
}

// data[n, c, ...] gamma[c] -> out[n, c, ...], or one gamma for all channels.
// Other shapes of gamma are matched by their extents, which a cut changes.
Rule prelu_rule(const OperatorView& op) {
  if (!has_operands(op, 2, 1)) return Rule();
  const Shape& data = op.inputs[0].shape;
  const Shape& gamma = op.inputs[1].shape;
  if (data.size() < 2 || gamma.size() != 1) return Rule();
  if (gamma[0] != 1 && gamma[0] != data[1]) return Rule();
  RuleBuilder rule(op);
  const Dims dims = rule.image_factors(data, 1);
  rule.input(dims).input({gamma[0] == data[1] ? dims[1] : kWhole});
  return rule.output(dims).build();
}

Rule leaky_relu_rule(const OperatorView& op) {
  AttributeReader attrs(op.node.attrs);
  const std::string type = attrs.text("act_type", "leaky");
  if (type == "prelu") return prelu_rule(op);
  // rrelu has no rule: MXNet 1.9.1 cannot run it in a symbolic executor at all.
  if (type != "leaky" && type != "elu" && type != "selu" && type != "gelu") return Rule();
  if (!has_operands(op, 1, 1)) return Rule();
  RuleBuilder rule(op);
  const Dims dims = rule.dim_factors(op.inputs[0].shape);
  return rule.input(dims).output(dims).build();
}

}  // namespace

void register_dropout_rules(RuleRegistry* registry) {
  (*registry)["Dropout"] = dropout_rule;
  (*registry)["LeakyReLU"] = leaky_relu_rule;
}

}  // namespace soybean
