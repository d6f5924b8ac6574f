// The fused recurrent layers: time and units are whole, samples are independent.
#include "rules/attributes.h"
#include "rules/families.h"
#include "rules/rule_builder.h"

namespace soybean {
namespace {

// RNN: data[t, n, c] parameters[...] state[l, n, h] (, cell[l, n, h]) -> out[t, n, h] (, state, cell)
Rule rnn_rule(const OperatorView& op) {
  AttributeReader attrs(op.node.attrs);
  const std::string mode = attrs.text("mode", "");
  const bool lengths = attrs.boolean("use_sequence_length", false);
  const bool drops = op.training && attrs.number("p", 0) != 0;  // between the layers
  const size_t states = mode == "lstm" ? 2 : 1;
  if (attrs.failed() || lengths || op.inputs.size() != 2 + states || op.outputs.empty()) return Rule();
  if (op.inputs[0].shape.size() != 3 || op.inputs[1].shape.size() != 1) return Rule();
  RuleBuilder rule(op);
  if (drops) rule.random();
  const Dims dims = {kWhole, rule.factor("n", op.inputs[0].shape[1]), kWhole};
  rule.input(dims).input({kWhole});
  for (size_t i = 0; i < states; ++i) rule.input(dims);
  for (size_t i = 0; i < op.outputs.size(); ++i) rule.output(dims);
  return rule.build();
}

// The flat weights of all layers in one vector.
Rule parameter_concat_rule(const OperatorView& op) {
  if (op.outputs.size() != 1) return Rule();
  RuleBuilder rule(op);
  for (const TensorType& input : op.inputs) rule.input(Dims(input.shape.size(), kWhole));
  return rule.output(Dims(op.outputs[0].shape.size(), kWhole)).build();
}

}  // namespace

void register_recurrent_rules(RuleRegistry* registry) {
  (*registry)["RNN"] = rnn_rule;
  (*registry)["_rnn_param_concat"] = parameter_concat_rule;
}

}  // namespace soybean
