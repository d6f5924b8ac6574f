// FullyConnected: data[n, k] weight[m, k] bias[m] -> out[n, m].
#include "rules/attributes.h"
#include "rules/families.h"
#include "rules/rule_builder.h"

namespace soybean {
namespace {

Rule finish_dense(RuleBuilder* rule, const Dims& data, const Dims& weight, const Dims& out, bool bias) {
  const int m = out.back();
  rule->input(data).input(weight);
  if (bias) rule->addend({m}).without_addends("no_bias", "True");
  return rule->output(out).extent_attr("num_hidden", m).build();
}

// flatten=True: all dims of the data but the first are one row of the product.
// Rows of several dims can be cut along the first of them only.
Rule flattened_dense_rule(const OperatorView& op, int64_t num_hidden, bool bias) {
  const Shape& data = op.inputs[0].shape;
  if (data.size() < 2) return Rule();
  RuleBuilder rule(op);
  const int n = rule.factor("n", data[0]);
  const int m = rule.factor("m", num_hidden);
  const int k = rule.reduced_factor("k", data[1]);
  Dims data_dims(data.size(), kWhole);
  data_dims[0] = n;
  data_dims[1] = k;
  return finish_dense(&rule, data_dims, {m, k}, {n, m}, bias);
}

// flatten=False: the last dim is the row, every other one a factor.
Rule batched_dense_rule(const OperatorView& op, int64_t num_hidden, bool bias) {
  const Shape& data = op.inputs[0].shape;
  if (data.empty()) return Rule();
  RuleBuilder rule(op);
  Dims leading = rule.dim_factors(Shape(data.begin(), data.end() - 1));
  Dims data_dims = leading;
  Dims out_dims = leading;
  out_dims.push_back(rule.factor("m", num_hidden));
  data_dims.push_back(rule.reduced_factor("k", data.back()));
  return finish_dense(&rule, data_dims, {out_dims.back(), data_dims.back()}, out_dims, bias);
}

Rule fully_connected_rule(const OperatorView& op) {
  AttributeReader attrs(op.node.attrs);
  const int64_t num_hidden = attrs.integer("num_hidden");
  const bool bias = !attrs.boolean("no_bias", false);
  const bool flatten = attrs.boolean("flatten", true);
  if (attrs.failed() || !has_operands(op, bias ? 3 : 2, 1)) return Rule();
  return flatten ? flattened_dense_rule(op, num_hidden, bias) : batched_dense_rule(op, num_hidden, bias);
}

}  // namespace

void register_dense_rules(RuleRegistry* registry) {
  (*registry)["FullyConnected"] = fully_connected_rule;
}

}  // namespace soybean
