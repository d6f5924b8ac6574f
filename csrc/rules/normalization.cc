// Normalizations. A dim over which a statistic is taken is whole, or, where the operator
// can be written out, a factor with a statistic.
#include <functional>

#include "rules/attributes.h"
#include "rules/families.h"
#include "rules/rule_builder.h"
#include "rules/written_out.h"

namespace soybean {
namespace {

// `count` statistics over the dims, each for every place of the other dims, in the
// precision in which data of this one is written out.
void take_statistics(const Shape& data, const Dims& dims, const DimSet& over, size_t count, int itemsize,
                     RuleBuilder* rule) {
  Shape shape = data;
  Dims left = dims;
  for (const size_t d : over) {
    rule->takes_statistic(dims[d]);
    shape[d] = 1;
    left[d] = kWhole;
  }
  for (size_t i = 0; i < count; ++i) rule->statistics(shape, left, written_itemsize(itemsize));
}

// data[n, c, ...] gamma[c] beta[c] mean[c] var[c] -> out[n, c, ...] (, mean[c], var[c])
//
// Statistics of the batch are over every dim but the channels, which alone may
// then be cut. With given statistics every dim is independent, unless the
// statistics are themselves outputs: those would be the same in every group.
Rule any_batch_norm_rule(const OperatorView& op, const std::function<void(RuleBuilder*)>& finish) {
  AttributeReader attrs(op.node.attrs);
  const int64_t axis = attrs.integer("axis", 1);
  const bool global = attrs.boolean("use_global_stats", false);
  if (attrs.failed() || op.inputs.size() != 5 || op.outputs.empty()) return Rule();
  const Shape& data = op.inputs[0].shape;
  const auto channel = axis_index(axis, data.size());
  if (!channel) return Rule();
  DimSet whole;
  if ((op.training && !global) || op.outputs.size() > 1) {
    for (size_t d = 0; d < data.size(); ++d) {
      if (d != *channel) whole.insert(d);
    }
  }
  RuleBuilder rule(op);
  const Dims dims = rule.image_factors(data, *channel, whole);
  const int c = dims[*channel];
  rule.input(dims).output(dims);
  for (size_t i = 1; i < 5; ++i) rule.input({c});
  for (size_t i = 1; i < op.outputs.size(); ++i) rule.output({c});
  finish(&rule);
  return rule.build();
}

Rule batch_norm_rule(const OperatorView& op) {
  return any_batch_norm_rule(op, [](RuleBuilder*) {});
}

// Parts run as BatchNorm: MXNet's SyncBatchNorm waits for as many others as its
// attributes say, and all that have one key share their state.
Rule sync_batch_norm_rule(const OperatorView& op) {
  if (op.outputs.size() != 1) return Rule();
  return any_batch_norm_rule(op, [&op](RuleBuilder* rule) {
    rule->runs_as("BatchNorm").restate("axis", "1");
    for (const char* name : {"eps", "momentum", "fix_gamma", "use_global_stats"}) {
      const auto attr = op.node.attrs.find(name);
      if (attr != op.node.attrs.end()) rule->restate(name, attr->second);
    }
  });
}

// data[n+, c, ...+] -> sums[2 bins, c]
Rule channel_sums_rule(const OperatorView& op) {
  AttributeReader attrs(op.node.attrs);
  const int64_t axis = attrs.integer("axis", 1);
  if (attrs.failed() || !has_operands(op, 1, 1)) return Rule();
  const Shape& data = op.inputs[0].shape;
  const auto channel = axis_index(axis, data.size());
  if (!channel) return Rule();
  const std::vector<std::string> names = image_dim_names(data.size(), *channel);
  RuleBuilder rule(op);
  Dims dims;
  for (size_t d = 0; d < data.size(); ++d) {
    dims.push_back(d == *channel ? rule.factor(names[d], data[d]) : rule.reduced_factor(names[d], data[d]));
  }
  return rule.input(dims).output({kWhole, dims[*channel]}).build();
}

// sums[2 bins, c] gamma[c] beta[c] -> factors[2, c] mean[c] var[c]
Rule batch_norm_factors_rule(const OperatorView& op) {
  if (!has_operands(op, 3, 3) || op.inputs[1].shape.size() != 1) return Rule();
  RuleBuilder rule(op);
  const int c = rule.factor("c", op.inputs[1].shape[0]);
  rule.input({kWhole, c}).input({c}).input({c});
  return rule.output({kWhole, c}).output({c}).output({c}).build();
}

// data[n, c, ...] factor[c] offset[c] -> data * factor / sqrt(1 + eps) + offset
//
// As a BatchNorm whose given statistics are 0 and 1.
Rule batch_norm_shift_rule(const OperatorView& op) {
  AttributeReader attrs(op.node.attrs);
  const int64_t axis = attrs.integer("axis", 1);
  const std::string eps = attrs.text("eps", "");
  if (attrs.failed() || !has_operands(op, 3, 1)) return Rule();
  const Shape& data = op.inputs[0].shape;
  const auto channel = axis_index(axis, data.size());
  if (!channel) return Rule();
  RuleBuilder rule(op);
  const Dims dims = rule.image_factors(data, *channel);
  const int c = dims[*channel];
  rule.input(dims).input({c}).input({c}).output(dims).runs_as("BatchNorm");
  rule.own_operand("_zeros", c, op.inputs[1].itemsize).own_operand("_ones", c, op.inputs[1].itemsize);
  rule.restate("axis", std::to_string(axis)).restate("eps", eps);
  return rule.restate("fix_gamma", "False").restate("use_global_stats", "True").build();
}

// data[n, ..., k] gamma[k] beta[k] -> out[n, ..., k] (, mean[n, ..., 1], std)
Rule layer_norm_rule(const OperatorView& op) {
  AttributeReader attrs(op.node.attrs);
  const int64_t axis_attr = attrs.integer("axis", -1);
  if (attrs.failed() || op.inputs.size() != 3 || op.outputs.empty()) return Rule();
  const Shape& data = op.inputs[0].shape;
  const auto axis = axis_index(axis_attr, data.size());
  if (!axis) return Rule();
  RuleBuilder rule(op);
  const bool fused = op.outputs.size() > 1;  // mean and deviation are outputs themselves
  const Dims dims = rule.dim_factors(data, fused ? DimSet{*axis} : DimSet{});
  if (!fused) take_statistics(data, dims, {*axis}, 2, op.inputs[0].itemsize, &rule);
  rule.input(dims).input({dims[*axis]}).input({dims[*axis]});
  for (size_t i = 0; i < op.outputs.size(); ++i) rule.output(dims);
  return rule.build();
}

// data[n, c, ...] gamma[c] beta[c] -> out[n, c, ...], statistics over the image
Rule instance_norm_rule(const OperatorView& op) {
  if (!has_operands(op, 3, 1) || op.inputs[0].shape.size() < 3) return Rule();
  const Shape& data = op.inputs[0].shape;
  RuleBuilder rule(op);
  DimSet image;
  for (size_t d = 2; d < data.size(); ++d) image.insert(d);
  const Dims dims = rule.image_factors(data, 1);
  take_statistics(data, dims, image, 2, op.inputs[0].itemsize, &rule);
  return rule.input(dims).input({dims[1]}).input({dims[1]}).output(dims).build();
}

// Of each group over its channels and the image. The channels of a group can be cut
// where there is one group.
void group_statistics(const OperatorView& op, int64_t groups, Dims* dims, RuleBuilder* rule) {
  const Shape& data = op.inputs[0].shape;
  const std::vector<std::string> names = image_dim_names(data.size(), 1);
  Shape shape = {data[0], groups};
  Dims left = {(*dims)[0], groups > 1 ? (*dims)[1] : kWhole};
  if (groups == 1) rule->takes_statistic((*dims)[1] = rule->factor(names[1], data[1]));
  for (size_t d = 2; d < data.size(); ++d) rule->takes_statistic((*dims)[d] = rule->factor(names[d], data[d]));
  for (size_t i = 0; i < 2; ++i) rule->statistics(shape, left, written_itemsize(op.inputs[0].itemsize));
}

// data[n, g * block, ...] gamma[g] beta[g] -> out[n, g * block, ...] (, mean[n, g], std)
Rule group_norm_rule(const OperatorView& op) {
  AttributeReader attrs(op.node.attrs);
  const int64_t groups = attrs.integer("num_groups", 1);
  if (attrs.failed() || op.inputs.size() != 3 || op.outputs.empty()) return Rule();
  const Shape& data = op.inputs[0].shape;
  if (data.size() < 3) return Rule();
  RuleBuilder rule(op);
  const bool one = groups == 1 && op.outputs.size() == 1;
  const int n = rule.factor("n", data[0]);
  const int g = one ? kWhole : rule.factor("g", groups);
  Dims dims(data.size(), kWhole);
  dims[0] = n;
  dims[1] = g;
  if (op.outputs.size() == 1) group_statistics(op, groups, &dims, &rule);
  rule.input(dims).input({g}).input({g}).output(dims);
  if (!one) rule.extent_attr("num_groups", g);
  for (size_t i = 1; i < op.outputs.size(); ++i) rule.output({n, g});
  return rule.build();
}

Rule l2_normalization_rule(const OperatorView& op) {
  AttributeReader attrs(op.node.attrs);
  const std::string mode = attrs.text("mode", "instance");
  if (!has_operands(op, 1, 1) || op.inputs[0].shape.size() < 2) return Rule();
  const Shape& data = op.inputs[0].shape;
  DimSet normalised;
  if (mode == "channel") {
    normalised = {1};
  } else if (mode == "instance" || mode == "spatial") {
    for (size_t d = mode == "spatial" ? 2 : 1; d < data.size(); ++d) normalised.insert(d);
  } else {
    return Rule();
  }
  RuleBuilder rule(op);
  const Dims dims = rule.image_factors(data, 1);
  take_statistics(data, dims, normalised, 1, op.inputs[0].itemsize, &rule);
  return rule.input(dims).output(dims).build();
}

// Over neighbouring channels, at each pixel.
Rule local_response_rule(const OperatorView& op) {
  if (!has_operands(op, 1, 1) || op.inputs[0].shape.size() != 4) return Rule();
  RuleBuilder rule(op);
  const Dims dims = rule.image_factors(op.inputs[0].shape, 1, {1});
  return rule.input(dims).output(dims).build();
}

}  // namespace

void register_normalization_rules(RuleRegistry* registry) {
  (*registry)["BatchNorm"] = batch_norm_rule;
  (*registry)["BatchNorm_v1"] = batch_norm_rule;
  (*registry)["_contrib_BatchNormWithReLU"] = batch_norm_rule;
  (*registry)["_contrib_SyncBatchNorm"] = sync_batch_norm_rule;
  (*registry)["_soybean_mx_channel_sums"] = channel_sums_rule;
  (*registry)["_soybean_mx_batch_norm_factors"] = batch_norm_factors_rule;
  (*registry)["_soybean_mx_batch_norm_shift"] = batch_norm_shift_rule;
  (*registry)["LayerNorm"] = layer_norm_rule;
  (*registry)["InstanceNorm"] = instance_norm_rule;
  (*registry)["GroupNorm"] = group_norm_rule;
  (*registry)["L2Normalization"] = l2_normalization_rule;
  (*registry)["LRN"] = local_response_rule;
}

}  // namespace soybean
