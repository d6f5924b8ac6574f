// Augmentation and conversion of images: [h, w, c], or [n, h, w, c] for several.
//
// Those that draw a random number draw one for all that they are given, so that a part
// would be another program: they have no rule.
#include "rules/attributes.h"
#include "rules/families.h"
#include "rules/rule_builder.h"

namespace soybean {
namespace {

constexpr size_t kImageRank = 3;

// The names of the dims of [n, h, w, c], of which the first may be missing.
Dims named_dims(RuleBuilder* rule, const Shape& shape, const std::string& names, const std::string& whole) {
  Dims dims;
  for (size_t d = 0; d < shape.size(); ++d) {
    const char name = names[d + names.size() - shape.size()];
    dims.push_back(whole.find(name) != std::string::npos ? kWhole : rule->factor(std::string(1, name), shape[d]));
  }
  return dims;
}

bool has_image(const OperatorView& op, size_t most = kImageRank + 1) {
  if (!has_operands(op, 1, 1)) return false;
  const size_t rank = op.inputs[0].shape.size();
  return rank >= kImageRank && rank <= most && op.outputs[0].shape.size() == rank;
}

Rule with_whole(const OperatorView& op, const std::string& names, const std::string& whole) {
  RuleBuilder rule(op);
  const Dims dims = named_dims(&rule, op.inputs[0].shape, names, whole);
  return rule.input(dims).output(dims).build();
}

Rule resize_rule(const OperatorView& op) { return has_image(op) ? with_whole(op, "nhwc", "hw") : Rule(); }

// MXNet takes images of one and three channels only.
Rule crop_rule(const OperatorView& op) { return has_image(op) ? with_whole(op, "nhwc", "hwc") : Rule(); }

// Runs as reverse, which is right: MXNet's flips leave the middle line of an odd extent as
// it was in memory, and their gradient as the output's, not flipped.
Rule flip_rule(const OperatorView& op, size_t axis, const std::string& name) {
  if (!has_image(op, kImageRank)) return Rule();
  Rule rule = with_whole(op, "hwc", name);
  if (!rule.known) return rule;
  rule.runs_as = "reverse";
  rule.restated = {{"axis", "(" + std::to_string(axis) + ",)"}};
  return rule;
}

Rule flip_left_right_rule(const OperatorView& op) { return flip_rule(op, 1, "w"); }

Rule flip_top_bottom_rule(const OperatorView& op) { return flip_rule(op, 0, "h"); }

// A number for each channel is added.
Rule lighting_rule(const OperatorView& op) { return has_image(op, kImageRank) ? with_whole(op, "hwc", "c") : Rule(); }

// [n, c, h, w], with a mean and a deviation for each channel
Rule normalize_rule(const OperatorView& op) { return has_image(op) ? with_whole(op, "nchw", "c") : Rule(); }

// [n, h, w, c] -> [n, c, h, w]
Rule to_tensor_rule(const OperatorView& op) {
  if (!has_image(op)) return Rule();
  RuleBuilder rule(op);
  const Dims dims = named_dims(&rule, op.inputs[0].shape, "nhwc", "");
  Dims out = dims;
  out.insert(out.end() - kImageRank, out.back());
  out.pop_back();
  return rule.input(dims).output(out).build();
}

}  // namespace

void register_image_rules(RuleRegistry* registry) {
  (*registry)["_image_crop"] = crop_rule;
  (*registry)["_image_resize"] = resize_rule;
  (*registry)["_image_flip_left_right"] = flip_left_right_rule;
  (*registry)["_image_flip_top_bottom"] = flip_top_bottom_rule;
  (*registry)["_image_adjust_lighting"] = lighting_rule;
  (*registry)["_image_normalize"] = normalize_rule;
  (*registry)["_image_to_tensor"] = to_tensor_rule;
}

}  // namespace soybean
