// Inference in 8 bits: samples are independent. The range that a tensor's integers stand
// for comes beside it, as two tensors of one element, least and most. What a range is made
// of must be other ranges or attributes: one that is measured on the tensor would differ
// between parts.
#include "rules/attributes.h"
#include "rules/families.h"
#include "rules/rule_builder.h"

namespace soybean {
namespace {

// The first of the outputs and the inputs that `samples` names list the samples first.
// The other outputs are ranges.
Rule sample_rule(const OperatorView& op, const DimSet& samples) {
  if (op.inputs.empty() || op.outputs.empty() || op.outputs[0].shape.empty()) return Rule();
  RuleBuilder rule(op);
  const int n = rule.factor("n", op.outputs[0].shape[0]);
  const auto dims_of = [](const Shape& shape, int first) {
    Dims dims(shape.size(), kWhole);
    if (!dims.empty()) dims[0] = first;
    return dims;
  };
  for (size_t i = 0; i < op.inputs.size(); ++i) {
    rule.input(dims_of(op.inputs[i].shape, samples.count(i) > 0 ? n : kWhole));
  }
  rule.output(dims_of(op.outputs[0].shape, n));
  for (size_t i = 1; i < op.outputs.size(); ++i) rule.alike_output(dims_of(op.outputs[i].shape, kWhole));
  return rule.build();
}

bool is_calibrated(const OperatorView& op) {
  AttributeReader attrs(op.node.attrs);
  for (const char* name : {"min_calib_range", "max_calib_range"}) {
    const std::string text = attrs.text(name, "None");
    if (text == "None" || !parse_number(text)) return false;
  }
  return true;
}

Rule first_operand_rule(const OperatorView& op) { return sample_rule(op, {0}); }

Rule first_operand_calibrated_rule(const OperatorView& op) {
  return is_calibrated(op) ? first_operand_rule(op) : Rule();
}

Rule two_operands_rule(const OperatorView& op) { return sample_rule(op, {0, 1}); }

Rule concat_rule(const OperatorView& op) {
  AttributeReader attrs(op.node.attrs);
  const int64_t dim = attrs.integer("dim", 1);
  const int64_t count = attrs.integer("num_args");
  if (attrs.failed() || op.inputs.empty()) return Rule();
  const auto axis = axis_index(dim, op.inputs[0].shape.size());
  // Each operand brings its least and its most.
  if (!axis || *axis == 0 || count < 1 || op.inputs.size() != 3 * static_cast<size_t>(count)) return Rule();
  DimSet samples;
  for (size_t i = 0; i < static_cast<size_t>(count); ++i) samples.insert(i);
  return sample_rule(op, samples);
}

// oneDNN's convolution with what follows it, and its dense layer. Where a sum is one of
// these, the other addend stands before the ranges.
Rule fused_rule(const OperatorView& op) {
  AttributeReader attrs(op.node.attrs);
  const bool quantized = attrs.boolean("quantized", false);
  const bool sum = attrs.boolean("with_sum", false);
  if (attrs.failed() || (quantized && !is_calibrated(op))) return Rule();
  DimSet samples = {0};
  if (sum) {
    const size_t behind = quantized ? 5 : 1;
    if (op.inputs.size() < 2 + behind) return Rule();
    samples.insert(op.inputs.size() - behind);
  }
  return sample_rule(op, samples);
}

}  // namespace

void register_quantization_rules(RuleRegistry* registry) {
  for (const char* name :
       {"_contrib_quantize", "_contrib_dequantize", "_contrib_quantized_act", "_contrib_quantized_conv",
        "_contrib_quantized_embedding", "_contrib_quantized_flatten", "_contrib_quantized_fully_connected",
        "_contrib_quantized_pooling"}) {
    (*registry)[name] = first_operand_rule;
  }
  for (const char* name : {"_contrib_quantize_v2", "_contrib_requantize", "_contrib_quantized_batch_norm"}) {
    (*registry)[name] = first_operand_calibrated_rule;
  }
  for (const char* name : {"_contrib_quantized_elemwise_add", "_contrib_quantized_elemwise_mul"}) {
    (*registry)[name] = two_operands_rule;
  }
  (*registry)["_contrib_quantized_concat"] = concat_rule;
  (*registry)["_sg_mkldnn_conv"] = fused_rule;
  (*registry)["_sg_mkldnn_fully_connected"] = fused_rule;
}

}  // namespace soybean
