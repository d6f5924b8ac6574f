// Convolutions whose windows sample the data at learned offsets.
//
// DeformableConvolution           data[n, c, *, *]  offset[n, *, *, *]  weight[m, c, kh, kw]  bias[m]
//                                 ->  out[n, m, *, *]
// ModulatedDeformableConvolution  with mask[n, *, *, *] behind the offset
//
// The offsets say where in the whole image a pixel of the output looks, so that images
// are whole. Given offsets (and a mask), the operator is linear in the data and in the
// weight: input channels are a sum. Offsets come in deformable groups, each for a block
// of input channels.
#include <numeric>

#include "rules/attributes.h"
#include "rules/families.h"
#include "rules/rule_builder.h"

namespace soybean {
namespace {

struct DeformableAttributes {
  int64_t filters = 0, groups = 1, deformable_groups = 1, step = 1;
  bool bias = true, modulated = false;
};

std::optional<DeformableAttributes> read_attributes(const OperatorView& op, bool modulated) {
  AttributeReader attrs(op.node.attrs);
  DeformableAttributes read;
  read.modulated = modulated;
  read.filters = attrs.integer("num_filter");
  read.groups = attrs.integer("num_group", 1);
  read.deformable_groups = attrs.integer("num_deformable_group", 1);
  read.step = attrs.integer("im2col_step", 64);
  read.bias = !attrs.boolean("no_bias", false);
  const std::string layout = attrs.text("layout", "None");
  if (attrs.failed() || (layout != "None" && layout != "NCHW")) return std::nullopt;
  if (read.groups < 1 || read.deformable_groups < 1) return std::nullopt;
  if (!has_operands(op, 3 + (modulated ? 1 : 0) + (read.bias ? 1 : 0), 1)) return std::nullopt;
  for (size_t i = 0; i < op.inputs.size() - (read.bias ? 1 : 0); ++i) {
    if (op.inputs[i].shape.size() != 4) return std::nullopt;
  }
  return read;
}

// The factors along the channels of the data, of the offsets and the mask, and of the
// output.
struct ChannelDims {
  int data = kWhole, offset = kWhole, out = kWhole;
};

// In blocks, one per group. A factor along the groups takes the deformable groups with
// it where those are blocks of the same channels.
ChannelDims grouped_channels(RuleBuilder* rule, const DeformableAttributes& read) {
  const bool shared = read.deformable_groups == 1;
  const int64_t blocks = shared ? read.groups : std::gcd(read.groups, read.deformable_groups);
  if (read.filters % read.groups != 0) return {};
  const int g = rule->factor("g", blocks);
  rule->extent_attr("num_group", g, read.groups / blocks);
  rule->extent_attr("num_filter", g, read.filters / blocks);
  if (!shared) rule->extent_attr("num_deformable_group", g, read.deformable_groups / blocks);
  return {g, shared ? kWhole : g, g};
}

ChannelDims full_channels(RuleBuilder* rule, const DeformableAttributes& read, int64_t channels) {
  const bool shared = read.deformable_groups == 1;
  // MXNet asks that the filters, too, be a multiple of the deformable groups.
  if (read.filters % read.deformable_groups != 0) return {};
  const int m = rule->factor("m", read.filters / read.deformable_groups);
  rule->extent_attr("num_filter", m, read.deformable_groups);
  const int c = rule->reduced_factor("c", shared ? channels : read.deformable_groups);
  if (!shared) rule->extent_attr("num_deformable_group", c);
  return {c, shared ? kWhole : c, m};
}

Rule deformable_rule(const OperatorView& op, bool modulated) {
  const auto read = read_attributes(op, modulated);
  if (!read) return Rule();
  const Shape& data = op.inputs[0].shape;
  RuleBuilder rule(op);
  const int n = rule.factor("n", data[0]);
  const bool grouped = read->groups > 1;
  const ChannelDims c = grouped ? grouped_channels(&rule, *read) : full_channels(&rule, *read, data[1]);
  rule.input({n, c.data, kWhole, kWhole}).input({n, c.offset, kWhole, kWhole});
  if (modulated) rule.input({n, c.offset, kWhole, kWhole});
  rule.input({c.out, grouped ? kWhole : c.data, kWhole, kWhole});
  if (read->bias) rule.addend({c.out}).without_addends("no_bias", "True");
  // So many images at once must divide the samples, which those of a part need not be.
  if (modulated && data[0] > read->step) rule.restate("im2col_step", "1");
  return rule.output({n, c.out, kWhole, kWhole}).build();
}

Rule deformable_convolution_rule(const OperatorView& op) { return deformable_rule(op, false); }

Rule modulated_deformable_convolution_rule(const OperatorView& op) { return deformable_rule(op, true); }

}  // namespace

void register_deformable_convolution_rules(RuleRegistry* registry) {
  (*registry)["_contrib_DeformableConvolution"] = deformable_convolution_rule;
  (*registry)["_contrib_ModulatedDeformableConvolution"] = modulated_deformable_convolution_rule;
}

}  // namespace soybean
