// Loss operators.
//
// The output operators of the symbolic interface (SoftmaxOutput and its kin)
// ignore the gradient that they are given and send back one of their own. So
// no two groups may compute the same elements (Rule::random), and a dim by
// whose extent that gradient is divided must be whole.
#include "rules/attributes.h"
#include "rules/families.h"
#include "rules/rule_builder.h"

namespace soybean {
namespace {

DimSet dims_from(size_t first, size_t rank) {
  DimSet dims;
  for (size_t d = first; d < rank; ++d) dims.insert(d);
  return dims;
}

// The dims of a label that lists the samples first: it may have any rank.
Dims per_sample(const Dims& data, const Shape& label) {
  Dims dims(label.size(), kWhole);
  if (!dims.empty()) dims[0] = data[0];
  return dims;
}

// data[n, ...] label[n, ...] -> out[n, ...]: only samples are independent
Rule sample_loss_rule(const OperatorView& op) {
  if (!has_operands(op, 2, 1) || op.inputs[0].shape.empty()) return Rule();
  RuleBuilder rule(op);
  const Shape& data = op.inputs[0].shape;
  const Dims dims = rule.dim_factors(data, dims_from(1, data.size()));
  return rule.input(dims).input(per_sample(dims, op.inputs[1].shape)).output(dims).random().build();
}

// The gradient may be divided by the batch size or by the number of labels that
// count, and with multi_output it is always divided by the number of pixels.
// With preserve_shape every row of the last dim is a sample.
Rule softmax_output_rule(const OperatorView& op) {
  AttributeReader attrs(op.node.attrs);
  const bool multi_output = attrs.boolean("multi_output", false);
  const bool preserve_shape = attrs.boolean("preserve_shape", false);
  if (attrs.failed() || attrs.text("normalization", "null") != "null") return Rule();
  if (multi_output || !preserve_shape) return sample_loss_rule(op);
  if (!has_operands(op, 2, 1) || op.inputs[0].shape.empty()) return Rule();
  const Shape& data = op.inputs[0].shape;
  RuleBuilder rule(op);
  const Dims dims = rule.dim_factors(data, {data.size() - 1});
  Dims label = dims;
  if (op.inputs[1].shape != data) label.pop_back();
  return rule.input(dims).input(label).output(dims).random().build();
}

// The gradient is grad_scale everywhere, or that divided by the extent of dim 0.
Rule make_loss_rule(const OperatorView& op) {
  AttributeReader attrs(op.node.attrs);
  const std::string normalization = attrs.text("normalization", "null");
  if (!has_operands(op, 1, 1) || (normalization != "null" && normalization != "batch")) return Rule();
  RuleBuilder rule(op);
  const DimSet whole = normalization == "batch" ? DimSet{0} : DimSet{};
  const Dims dims = rule.dim_factors(op.inputs[0].shape, whole);
  return rule.input(dims).output(dims).random().build();
}

// data[n, c] label[n] -> the sum over all samples, shape (1,)
Rule softmax_cross_entropy_rule(const OperatorView& op) {
  if (!has_operands(op, 2, 1) || op.inputs[0].shape.size() != 2) return Rule();
  RuleBuilder rule(op);
  const int n = rule.reduced_factor("n", op.inputs[0].shape[0]);
  return rule.input({n, kWhole}).input({n}).output({kWhole}).build();
}

// data[n, c] average[c] -> data, with a penalty of its own making in the gradient: on the
// average of each channel over the batch, which follows in `average`
Rule sparse_penalty_rule(const OperatorView& op) {
  if (!has_operands(op, 2, 1) || op.inputs[0].shape.size() != 2) return Rule();
  RuleBuilder rule(op);
  const int c = rule.factor("c", op.inputs[0].shape[1]);
  return rule.input({kWhole, c}).input({c}).output({kWhole, c}).random().build();
}

// lda[n, k] alpha[k] beta[k] state[n, k] lags[n, t] marks[n, t] valid_length[n] max_time[n]
// -> log-likelihood[n] state[n, k]
Rule hawkes_likelihood_rule(const OperatorView& op) {
  if (!has_operands(op, 8, 2) || op.inputs[0].shape.size() != 2) return Rule();
  RuleBuilder rule(op);
  const int n = rule.factor("n", op.inputs[0].shape[0]);
  rule.input({n, kWhole}).input({kWhole}).input({kWhole});
  for (size_t i = 0; i < 3; ++i) rule.input({n, kWhole});
  return rule.input({n}).input({n}).output({n}).output({n, kWhole}).build();
}

}  // namespace

void register_loss_rules(RuleRegistry* registry) {
  (*registry)["SoftmaxOutput"] = softmax_output_rule;
  for (const char* name : {"LinearRegressionOutput", "LogisticRegressionOutput", "MAERegressionOutput",
                           "SVMOutput"}) {
    (*registry)[name] = sample_loss_rule;
  }
  (*registry)["MakeLoss"] = make_loss_rule;
  (*registry)["make_loss"] = make_loss_rule;
  (*registry)["IdentityAttachKLSparseReg"] = sparse_penalty_rule;
  (*registry)["_contrib_hawkesll"] = hawkes_likelihood_rule;
  (*registry)["softmax_cross_entropy"] = softmax_cross_entropy_rule;
}

}  // namespace soybean
