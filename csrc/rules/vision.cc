// Operators that move and compare pixels: samples and channels are independent, and the
// image dims whole but where each pixel of the output is for itself.
#include "rules/attributes.h"
#include "rules/families.h"
#include "rules/rule_builder.h"

namespace soybean {
namespace {

bool has_images(const OperatorView& op, size_t inputs) {
  if (!has_operands(op, inputs, 1)) return false;
  for (const TensorType& input : op.inputs) {
    if (input.shape.size() != 4) return false;
  }
  return op.outputs[0].shape.size() == 4;
}

// data[n, c, *, *] (like[n, c, *, *], of which only the extents count) -> out[n, c, *, *]
//
// Where `like` has other samples and channels, they are factors of their own.
Rule sized_like_rule(const OperatorView& op) {
  if (op.inputs.empty() || op.inputs.size() > 2 || !has_images(op, op.inputs.size())) return Rule();
  RuleBuilder rule(op);
  const Dims dims = rule.image_factors(op.inputs[0].shape, 1, {2, 3});
  rule.input(dims);
  if (op.inputs.size() == 2) {
    Dims like = dims;
    for (size_t d = 0; d < 2; ++d) {
      const int64_t extent = op.inputs[1].shape[d];
      if (extent != op.inputs[0].shape[d]) like[d] = rule.same_factor("l" + std::to_string(d), extent);
    }
    rule.input(like);
  }
  return rule.output(dims).build();
}

// MXNet writes the gradient of `like` (zeros) with the number of samples of the data.
Rule bilinear_resize_rule(const OperatorView& op) {
  const bool like = op.inputs.size() == 2 && !op.inputs[0].shape.empty() && !op.inputs[1].shape.empty();
  return like && op.inputs[0].shape[0] != op.inputs[1].shape[0] ? Rule() : sized_like_rule(op);
}

// a[n, c, *, *] b[n, c, *, *] -> out[n, displacements, *, *], an average over the
// channels and a window
Rule correlation_rule(const OperatorView& op) {
  if (!has_images(op, 2)) return Rule();
  RuleBuilder rule(op);
  const int n = rule.factor("n", op.inputs[0].shape[0]);
  const int c = rule.reduced_factor("c", op.inputs[0].shape[1]);
  rule.input({n, c, kWhole, kWhole}).input({n, c, kWhole, kWhole});
  return rule.output({n, kWhole, kWhole, kWhole}).average().build();
}

// data[n, c, *, *] grid[n, 2, h, w] -> out[n, c, h, w]
Rule bilinear_sampler_rule(const OperatorView& op) {
  if (!has_images(op, 2)) return Rule();
  RuleBuilder rule(op);
  const Dims out = rule.image_factors(op.outputs[0].shape, 1);
  rule.input({out[0], out[1], kWhole, kWhole}).input({out[0], kWhole, out[2], out[3]});
  return rule.output(out).build();
}

// matrices[n, 6] or flow[n, 2, h, w] -> grid[n, 2, h, w]: coordinates from -1 to 1
Rule grid_generator_rule(const OperatorView& op) {
  if (!has_operands(op, 1, 1) || op.inputs[0].shape.empty()) return Rule();
  RuleBuilder rule(op);
  const int n = rule.factor("n", op.inputs[0].shape[0]);
  Dims data(op.inputs[0].shape.size(), kWhole);
  data[0] = n;
  return rule.input(data).output({n, kWhole, kWhole, kWhole}).build();
}

// data[n, c, *, *] matrices[n, 6] -> out[n, c, *, *]
Rule spatial_transformer_rule(const OperatorView& op) {
  if (!has_operands(op, 2, 1) || op.inputs[0].shape.size() != 4) return Rule();
  RuleBuilder rule(op);
  const Dims dims = rule.image_factors(op.inputs[0].shape, 1, {2, 3});
  return rule.input(dims).input({dims[0], kWhole}).output(dims).build();
}

// image[n, c, ...] -> columns[n, c * pixels of a window, windows], and back
Rule columns_rule(const OperatorView& op, const Shape& image, bool to_columns) {
  if (image.size() < 3) return Rule();
  RuleBuilder rule(op);
  const int n = rule.factor("n", image[0]);
  const int c = rule.factor("c", image[1]);
  Dims dims(image.size(), kWhole);
  dims[0] = n;
  dims[1] = c;
  const Dims columns = {n, c, kWhole};
  return rule.input(to_columns ? dims : columns).output(to_columns ? columns : dims).build();
}

Rule im2col_rule(const OperatorView& op) {
  return has_operands(op, 1, 1) ? columns_rule(op, op.inputs[0].shape, true) : Rule();
}

Rule col2im_rule(const OperatorView& op) {
  return has_operands(op, 1, 1) ? columns_rule(op, op.outputs[0].shape, false) : Rule();
}

}  // namespace

void register_vision_rules(RuleRegistry* registry) {
  (*registry)["Crop"] = sized_like_rule;
  (*registry)["_contrib_BilinearResize2D"] = bilinear_resize_rule;
  (*registry)["Correlation"] = correlation_rule;
  (*registry)["BilinearSampler"] = bilinear_sampler_rule;
  (*registry)["GridGenerator"] = grid_generator_rule;
  (*registry)["SpatialTransformer"] = spatial_transformer_rule;
  (*registry)["im2col"] = im2col_rule;
  (*registry)["col2im"] = col2im_rule;
}

}  // namespace soybean
