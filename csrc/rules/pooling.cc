// Pooling and resampling: samples and channels are independent. Windows run over the
// image dims; a global pool sums over them; what resamples has them whole.
#include "rules/attributes.h"
#include "rules/families.h"
#include "rules/rule_builder.h"

namespace soybean {
namespace {

DimSet image_dims(const Shape& shape) {
  DimSet dims;
  for (size_t d = 2; d < shape.size(); ++d) dims.insert(d);
  return dims;
}

Rule whole_images_rule(const OperatorView& op) {
  const Shape& in = op.inputs[0].shape;
  if (in.size() < 3 || op.outputs[0].shape.size() != in.size()) return Rule();
  RuleBuilder rule(op);
  const Dims dims = rule.image_factors(in, 1, image_dims(in));
  return rule.input(dims).output(dims).build();
}

// The sum or average over the whole image.
Rule global_sum_rule(const OperatorView& op, bool average) {
  const Shape& in = op.inputs[0].shape;
  if (in.size() < 3) return Rule();
  const std::vector<std::string> names = image_dim_names(in.size(), 1);
  RuleBuilder rule(op);
  Dims out = rule.image_factors(in, 1, image_dims(in));
  Dims data = out;
  for (size_t d = 2; d < in.size(); ++d) data[d] = rule.reduced_factor(names[d], in[d]);
  if (average) rule.average();
  return rule.input(data).output(out).build();
}

// Whether every window ends within the padding, so that "full" is "valid".
bool ends_within(const Shape& in, const WindowSizes& sizes) {
  for (size_t d = 2; d < in.size(); ++d) {
    const size_t i = d - 2;
    const int64_t stride = i < sizes.stride.size() ? sizes.stride[i] : 1;
    const int64_t pad = i < sizes.pad.size() ? sizes.pad[i] : 0;
    if (stride < 1 || (in[d] % stride + 2 * (pad % stride) - sizes.kernel[i] % stride) % stride != 0) return false;
  }
  return true;
}

Rule windowed_rule(const OperatorView& op, const WindowSizes& sizes, bool restate_valid) {
  auto windows = image_windows(op, sizes);
  DimSet whole;
  for (size_t d = 2; d < windows.size(); ++d) {
    if (!windows[d]) whole.insert(d);
  }
  RuleBuilder rule(op);
  const Dims dims = rule.image_factors(op.outputs[0].shape, 1, whole);
  for (size_t d = 2; d < windows.size(); ++d) {
    if (!windows[d]) continue;
    windows[d]->factor = dims[d];
    rule.window(*windows[d]);
  }
  if (restate_valid) rule.restate("pooling_convention", "valid");
  return rule.input(dims).output(dims).build();
}

Rule local_rule(const OperatorView& op, const std::string& type, AttributeReader* attrs) {
  const std::string convention = attrs->text("pooling_convention", "valid");
  WindowSizes sizes{attrs->integers("kernel"), attrs->integers("stride"), attrs->integers("pad"),
                    {}, convention == "full"};
  if (attrs->failed()) return Rule();
  const size_t rank = op.inputs[0].shape.size();
  if (sizes.kernel.size() + 2 != rank || op.outputs[0].shape.size() != rank ||
      (type != "max" && type != "avg" && type != "sum") ||
      (convention != "valid" && convention != "full")) {
    return whole_images_rule(op);
  }
  if (type != "avg" || !sizes.round_up) return windowed_rule(op, sizes, false);
  // What an average is divided by where a window ends beyond the padding differs
  // between MXNet's implementations, and which one it takes depends on the extents.
  if (!ends_within(op.inputs[0].shape, sizes)) return whole_images_rule(op);
  sizes.round_up = false;
  return windowed_rule(op, sizes, true);
}

Rule pooling_rule(const OperatorView& op) {
  AttributeReader attrs(op.node.attrs);
  const std::string type = attrs.text("pool_type", "max");
  const std::string layout = attrs.text("layout", "None");
  const bool global = attrs.boolean("global_pool", false);
  if (attrs.failed() || !has_operands(op, 1, 1)) return Rule();
  if (layout != "None" && layout != "NCW" && layout != "NCHW" && layout != "NCDHW") return Rule();
  if (global && (type == "sum" || type == "avg")) return global_sum_rule(op, type == "avg");
  return global ? whole_images_rule(op) : local_rule(op, type, &attrs);
}

Rule resize_rule(const OperatorView& op) {
  if (!has_operands(op, 1, 1)) return Rule();
  return whole_images_rule(op);
}

// data[n, c, *, *] weight[c, 1, kh, kw] -> out[n, c, *, *]: a transposed convolution
Rule bilinear_upsampling_rule(const OperatorView& op) {
  if (!has_operands(op, 2, 1) || op.outputs[0].shape.size() != 4) return Rule();
  RuleBuilder rule(op);
  const Dims dims = rule.image_factors(op.outputs[0].shape, 1, {2, 3});
  rule.input(dims).input({dims[1], kWhole, kWhole, kWhole}).output(dims);
  return rule.extent_attr("num_filter", dims[1]).build();
}

// Nearest-neighbour upsampling of one image, or of several joined or summed.
Rule upsampling_rule(const OperatorView& op) {
  AttributeReader attrs(op.node.attrs);
  const std::string type = attrs.text("sample_type", "");
  const std::string mode = attrs.text("multi_input_mode", "concat");
  if (type == "bilinear") return bilinear_upsampling_rule(op);
  if (type != "nearest" || op.inputs.empty() || op.outputs.size() != 1) return Rule();
  DimSet whole = {2, 3};
  if (mode == "concat" && op.inputs.size() > 1) whole.insert(1);
  RuleBuilder rule(op);
  const Dims dims = rule.image_factors(op.outputs[0].shape, 1, whole);
  for (size_t i = 0; i < op.inputs.size(); ++i) rule.input(dims);
  return rule.output(dims).build();
}

}  // namespace

void register_pooling_rules(RuleRegistry* registry) {
  (*registry)["Pooling"] = pooling_rule;
  (*registry)["Pooling_v1"] = pooling_rule;
  (*registry)["_contrib_AdaptiveAvgPooling2D"] = resize_rule;
  (*registry)["UpSampling"] = upsampling_rule;
}

}  // namespace soybean
