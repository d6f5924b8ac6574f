// Convolution    data[n, c, ~h, ~w]  weight[m, c, kh, kw]  bias[m]  ->  out[n, m, h, w]
// Deconvolution  data[n, c, ~h, ~w]  weight[c, m, kh, kw]  bias[m]  ->  out[n, m, h, w]
//
// With num_group > 1 the channels are blocks, one per group, and the groups are
// the only factor along them.
#include <algorithm>

#include "rules/attributes.h"
#include "rules/families.h"
#include "rules/rule_builder.h"

namespace soybean {
namespace {

struct ConvolutionAttributes {
  int64_t filters = 0;
  int64_t groups = 1;
  bool bias = true;
  bool pointwise = false;  // every output pixel comes from the one at its place
};

bool all_equal(const Integers& values, int64_t value) {
  return std::all_of(values.begin(), values.end(), [value](int64_t v) { return v == value; });
}

bool is_channel_first(const std::string& layout) {
  return layout == "None" || layout == "NCW" || layout == "NCHW" || layout == "NCDHW";
}

// No value for attributes that are not understood.
std::optional<ConvolutionAttributes> read_attributes(const OperatorView& op, bool bias_by_default) {
  AttributeReader attrs(op.node.attrs);
  ConvolutionAttributes read;
  read.filters = attrs.integer("num_filter");
  read.groups = attrs.integer("num_group", 1);
  read.bias = !attrs.boolean("no_bias", !bias_by_default);
  const Integers kernel = attrs.integers("kernel");
  const Integers stride = attrs.integers("stride");
  const Integers pad = attrs.integers("pad");
  const Integers adjusted = attrs.integers("adj");
  const Integers target = attrs.integers("target_shape");
  read.pointwise = all_equal(kernel, 1) && all_equal(stride, 1) && all_equal(pad, 0) &&
                   all_equal(adjusted, 0) && all_equal(target, 0);
  if (attrs.failed() || !is_channel_first(attrs.text("layout", "None"))) return std::nullopt;
  if (read.groups < 1 || !has_operands(op, read.bias ? 3 : 2, 1)) return std::nullopt;
  const size_t rank = op.inputs[0].shape.size();
  if (rank != kernel.size() + 2 || op.inputs[1].shape.size() != rank) return std::nullopt;
  if (op.outputs[0].shape.size() != rank || rank < 3) return std::nullopt;
  return read;
}

// n and, where the kernel is a single point, the image dims.
Dims sample_dims(RuleBuilder* rule, const OperatorView& op, bool pointwise) {
  const Shape& data = op.inputs[0].shape;
  DimSet whole = {1};
  for (size_t d = 2; d < data.size() && !pointwise; ++d) whole.insert(d);
  return rule->image_factors(data, 1, whole);
}

Rule finish_convolution(RuleBuilder* rule, Dims sample, int data_channel, int out_channel,
                        std::pair<int, int> weight_channels, const ConvolutionAttributes& read) {
  Dims data = sample;
  data[1] = data_channel;
  Dims out = sample;
  out[1] = out_channel;
  Dims weight(sample.size(), kWhole);
  weight[0] = weight_channels.first;
  weight[1] = weight_channels.second;
  rule->input(data).input(weight);
  if (read.bias) rule->addend({out_channel}).without_addends("no_bias", "True");
  return rule->output(out).build();
}

Rule grouped_rule(const OperatorView& op, const ConvolutionAttributes& read) {
  if (read.filters % read.groups != 0) return Rule();
  RuleBuilder rule(op);
  const Dims sample = sample_dims(&rule, op, read.pointwise);
  const int g = rule.factor("g", read.groups);
  rule.extent_attr("num_group", g).extent_attr("num_filter", g, read.filters / read.groups);
  return finish_convolution(&rule, sample, g, g, {g, kWhole}, read);
}

Rule full_rule(const OperatorView& op, const ConvolutionAttributes& read, bool transposed) {
  RuleBuilder rule(op);
  const Dims sample = sample_dims(&rule, op, read.pointwise);
  const int m = rule.factor("m", read.filters);
  const int c = rule.reduced_factor("c", op.inputs[0].shape[1]);
  rule.extent_attr("num_filter", m);
  const std::pair<int, int> weight = transposed ? std::make_pair(c, m) : std::make_pair(m, c);
  return finish_convolution(&rule, sample, c, m, weight, read);
}

Rule convolution_rule(const OperatorView& op) {
  const auto read = read_attributes(op, true);
  if (!read) return Rule();
  return read->groups > 1 ? grouped_rule(op, *read) : full_rule(op, *read, false);
}

bool is_onednn_deconvolution(const TensorType& data) {
  return data.itemsize == 4 && data.shape.size() == 4;
}

Rule deconvolution_rule(const OperatorView& op) {
  const auto read = read_attributes(op, false);
  // See takes_variable_only(): its weight cannot be put together from tiles.
  if (!read || is_onednn_deconvolution(op.inputs[0])) return Rule();
  return read->groups > 1 ? grouped_rule(op, *read) : full_rule(op, *read, true);
}

}  // namespace

bool takes_variable_only(const Graph& graph, int node, size_t input) {
  const Node& n = graph.node(node);
  const Node& source = graph.node(n.inputs[input].node);
  if (source.is_variable() && source.role == Role::kAuxiliary) return true;
  return n.op == "Deconvolution" && input == 1 && is_onednn_deconvolution(graph.type(n.inputs[0]));
}

void register_convolution_rules(RuleRegistry* registry) {
  (*registry)["Convolution"] = convolution_rule;
  (*registry)["Deconvolution"] = deconvolution_rule;
}

}  // namespace soybean
