// Detection: boxes, anchors, and pooling of regions. Samples are independent; anchors
// that are compared with each other are whole.
#include "rules/attributes.h"
#include "rules/families.h"
#include "rules/rule_builder.h"

namespace soybean {
namespace {

// The last dims of `shape` but the first `leading`.
DimSet dims_behind(size_t leading, const Shape& shape) {
  DimSet dims;
  for (size_t d = leading; d < shape.size(); ++d) dims.insert(d);
  return dims;
}

Dims with_first(int first, const Shape& shape) {
  Dims dims(shape.size(), kWhole);
  if (!dims.empty()) dims[0] = first;
  return dims;
}

// data[n, ..., boxes, elements] -> out likewise: boxes suppress each other
Rule box_nms_rule(const OperatorView& op) {
  if (!has_operands(op, 1, 1) || op.inputs[0].shape.size() < 2) return Rule();
  const Shape& data = op.inputs[0].shape;
  RuleBuilder rule(op);
  const Dims dims = rule.dim_factors(data, dims_behind(data.size() - 2, data));
  return rule.input(dims).output(dims).build();
}

// lhs[n, ..., 4] rhs[r, ..., 4] -> out[n, ..., r, ...]
Rule box_iou_rule(const OperatorView& op) {
  if (!has_operands(op, 2, 1)) return Rule();
  RuleBuilder rule(op);
  Dims out;
  for (size_t i = 0; i < 2; ++i) {
    const Shape& boxes = op.inputs[i].shape;
    if (boxes.empty()) return Rule();
    Dims dims;
    for (size_t d = 0; d + 1 < boxes.size(); ++d) {
      const std::string name = i == 0 ? (d == 0 ? "n" : "d") : "r";
      dims.push_back(rule.factor(d == 0 ? name : name + std::to_string(d), boxes[d]));
    }
    out.insert(out.end(), dims.begin(), dims.end());
    dims.push_back(kWhole);
    rule.input(dims);
  }
  return rule.output(out).build();
}

// data[n, ..., rows, columns] -> the column of each row, the row of each column
Rule bipartite_matching_rule(const OperatorView& op) {
  if (!has_operands(op, 1, 2) || op.inputs[0].shape.size() < 2) return Rule();
  const Shape& data = op.inputs[0].shape;
  RuleBuilder rule(op);
  Dims dims = rule.dim_factors(data, dims_behind(data.size() - 2, data));
  rule.input(dims);
  dims.pop_back();
  return rule.output(dims).output(dims).build();
}

// samples[n, a] matches[n, a] anchors[n, a, 4] refs[n, *, 4] means[4] stds[4] ->
// targets[n, a, 4] masks[n, a, 4]
Rule box_encode_rule(const OperatorView& op) {
  if (!has_operands(op, 6, 2) || op.inputs[2].shape.size() != 3) return Rule();
  RuleBuilder rule(op);
  const int n = rule.factor("n", op.inputs[2].shape[0]);
  const int a = rule.factor("a", op.inputs[2].shape[1]);
  rule.input({n, a}).input({n, a}).input({n, a, kWhole}).input({n, kWhole, kWhole});
  rule.input({kWhole}).input({kWhole});
  return rule.output({n, a, kWhole}).output({n, a, kWhole}).build();
}

// data[n, a, 4] anchors[1, a, 4] -> out[n, a, 4]
Rule box_decode_rule(const OperatorView& op) {
  if (!has_operands(op, 2, 1) || op.inputs[0].shape.size() != 3) return Rule();
  RuleBuilder rule(op);
  const int n = rule.factor("n", op.inputs[0].shape[0]);
  const int a = rule.factor("a", op.inputs[0].shape[1]);
  if (op.inputs[1].shape.size() != 3 || op.inputs[1].shape[0] != 1) return Rule();
  return rule.input({n, a, kWhole}).input({kWhole, a, kWhole}).output({n, a, kWhole}).build();
}

// data[n, c, h, w] -> anchors[1, h * w * k, 4], of the extents alone
Rule multibox_prior_rule(const OperatorView& op) {
  if (!has_operands(op, 1, 1) || op.inputs[0].shape.size() != 4) return Rule();
  RuleBuilder rule(op);
  const int n = rule.same_factor("n", op.inputs[0].shape[0]);
  const int c = rule.same_factor("c", op.inputs[0].shape[1]);
  return rule.input({n, c, kWhole, kWhole}).output({kWhole, kWhole, kWhole}).build();
}

// Tensors of samples, but for the input `shared`; each output lists the samples first.
Rule sample_rule(const OperatorView& op, size_t shared) {
  if (op.inputs.size() <= shared || op.inputs[shared == 0 ? 1 : 0].shape.empty()) return Rule();
  RuleBuilder rule(op);
  const int n = rule.factor("n", op.inputs[shared == 0 ? 1 : 0].shape[0]);
  for (size_t i = 0; i < op.inputs.size(); ++i) rule.input(with_first(i == shared ? kWhole : n, op.inputs[i].shape));
  for (const TensorType& output : op.outputs) rule.output(with_first(n, output.shape));
  return rule.build();
}

// anchors[1, a, 4] labels[n, *, *] predictions[n, classes, a] -> three tensors of samples
Rule multibox_target_rule(const OperatorView& op) { return has_operands(op, 3, 3) ? sample_rule(op, 0) : Rule(); }

// probabilities[n, classes, a] offsets[n, 4 * a] anchors[1, a, 4] -> out[n, a, 6]
Rule multibox_detection_rule(const OperatorView& op) { return has_operands(op, 3, 1) ? sample_rule(op, 2) : Rule(); }

// Regions of all images in one tensor, each with its image's number, which a part would
// count from its own beginning.
Rule proposal_rule(const OperatorView& op) {
  if (op.inputs.size() != 3 || op.outputs.empty()) return Rule();
  RuleBuilder rule(op);
  for (const TensorType& input : op.inputs) rule.input(Dims(input.shape.size(), kWhole));
  for (const TensorType& output : op.outputs) rule.output(Dims(output.shape.size(), kWhole));
  return rule.build();
}

// data[n, c * block, h, w] rois[r, ...] -> out[r, c, ph, pw]. A region names its image
// by number. Where pooling is position-sensitive, a channel of the output is made of a
// block of the data's.
Rule roi_rule(const OperatorView& op) {
  if (!has_operands(op, 2, 1) || op.outputs[0].shape.size() != 4) return Rule();
  const Shape& out = op.outputs[0].shape;
  RuleBuilder rule(op);
  const int r = rule.factor("r", out[0]);
  const int c = rule.factor("c", out[1]);
  rule.input({kWhole, c, kWhole, kWhole}).input({r, kWhole}).output({r, c, kWhole, kWhole});
  if (op.node.attrs.count("output_dim") > 0) rule.extent_attr("output_dim", c);
  return rule.build();
}

// As roi_rule, with trans[r, 2 * classes, *, *]: offsets for the channels of each class.
Rule deformable_roi_rule(const OperatorView& op) {
  AttributeReader attrs(op.node.attrs);
  const int64_t channels = attrs.integer("output_dim");
  const bool no_trans = attrs.boolean("no_trans", false);
  if (attrs.failed() || op.outputs.size() != 1 || op.outputs[0].shape.size() != 4) return Rule();
  if (no_trans) return roi_rule(op);
  if (!has_operands(op, 3, 1) || op.inputs[2].shape.size() != 4) return Rule();
  const int64_t classes = op.inputs[2].shape[1] / 2;
  if (classes < 1 || channels % classes != 0) return Rule();
  RuleBuilder rule(op);
  const int r = rule.factor("r", op.outputs[0].shape[0]);
  const int c = rule.factor("c", classes > 1 ? classes : channels);
  rule.input({kWhole, c, kWhole, kWhole}).input({r, kWhole});
  rule.input({r, classes > 1 ? c : kWhole, kWhole, kWhole}).output({r, c, kWhole, kWhole});
  return rule.extent_attr("output_dim", c, classes > 1 ? channels / classes : 1).build();
}

}  // namespace

void register_detection_rules(RuleRegistry* registry) {
  (*registry)["_contrib_box_nms"] = box_nms_rule;
  (*registry)["_contrib_box_iou"] = box_iou_rule;
  (*registry)["_contrib_bipartite_matching"] = bipartite_matching_rule;
  (*registry)["_contrib_box_encode"] = box_encode_rule;
  (*registry)["_contrib_box_decode"] = box_decode_rule;
  (*registry)["_contrib_MultiBoxPrior"] = multibox_prior_rule;
  (*registry)["_contrib_MultiBoxTarget"] = multibox_target_rule;
  (*registry)["_contrib_MultiBoxDetection"] = multibox_detection_rule;
  for (const char* name : {"_contrib_Proposal", "_contrib_MultiProposal"}) (*registry)[name] = proposal_rule;
  for (const char* name : {"ROIPooling", "_contrib_ROIAlign", "_contrib_RROIAlign", "_contrib_PSROIPooling"}) {
    (*registry)[name] = roi_rule;
  }
  (*registry)["_contrib_DeformablePSROIPooling"] = deformable_roi_rule;
}

}  // namespace soybean
