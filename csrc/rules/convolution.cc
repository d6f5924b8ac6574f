// Convolution    data[n, c, h*, w*]  weight[m, c, kh, kw]  bias[m]  ->  out[n, m, h, w]
// Deconvolution  data[n, c, ~h, ~w]  weight[c, m, kh, kw]  bias[m]  ->  out[n, m, h, w]
//
// With num_group > 1 the channels are blocks, one per group, and the groups are
// the only factor along them. h* is a dim along which windows run; ~h is whole, but
// for kernels of a single point.
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
  WindowSizes windows;
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
  const Integers dilate = attrs.integers("dilate");
  const Integers adjusted = attrs.integers("adj");
  const Integers target = attrs.integers("target_shape");
  read.pointwise = all_equal(kernel, 1) && all_equal(stride, 1) && all_equal(pad, 0) &&
                   all_equal(adjusted, 0) && all_equal(target, 0);
  read.windows = {kernel, stride, pad, dilate, false};
  if (attrs.failed() || !is_channel_first(attrs.text("layout", "None"))) return std::nullopt;
  if (read.groups < 1 || !has_operands(op, read.bias ? 3 : 2, 1)) return std::nullopt;
  const size_t rank = op.inputs[0].shape.size();
  if (rank != kernel.size() + 2 || op.inputs[1].shape.size() != rank) return std::nullopt;
  if (op.outputs[0].shape.size() != rank || rank < 3) return std::nullopt;
  return read;
}

// The dims of the data, those of the output, and what runs along them. The channels
// are still to be filled in.
struct ImageDims {
  Dims data, out;
  std::vector<std::optional<Window>> windows;
};

ImageDims image_dims(RuleBuilder* rule, const OperatorView& op, const ConvolutionAttributes& read,
                     bool transposed) {
  ImageDims dims;
  dims.windows.resize(op.inputs[0].shape.size());
  if (!read.pointwise && !transposed) dims.windows = image_windows(op, read.windows);
  DimSet whole = {1};
  for (size_t d = 2; d < dims.windows.size() && !read.pointwise; ++d) {
    if (!dims.windows[d]) whole.insert(d);
  }
  dims.data = dims.out = rule->image_factors(op.outputs[0].shape, 1, whole);
  return dims;
}

Rule finish_convolution(RuleBuilder* rule, ImageDims dims, int data_channel, int out_channel,
                        std::pair<int, int> weight_channels, const ConvolutionAttributes& read) {
  dims.data[1] = data_channel;
  dims.out[1] = out_channel;
  for (size_t d = 2; d < dims.data.size(); ++d) {
    if (!dims.windows[d]) continue;
    dims.windows[d]->factor = dims.data[d];
    rule->window(*dims.windows[d]);
  }
  Dims weight(dims.data.size(), kWhole);
  weight[0] = weight_channels.first;
  weight[1] = weight_channels.second;
  rule->input(dims.data).input(weight);
  if (read.bias) rule->addend({out_channel}).without_addends("no_bias", "True");
  return rule->output(dims.out).build();
}

Rule grouped_rule(const OperatorView& op, const ConvolutionAttributes& read, bool transposed) {
  if (read.filters % read.groups != 0) return Rule();
  RuleBuilder rule(op);
  const ImageDims dims = image_dims(&rule, op, read, transposed);
  const int g = rule.factor("g", read.groups);
  rule.extent_attr("num_group", g).extent_attr("num_filter", g, read.filters / read.groups);
  return finish_convolution(&rule, dims, g, g, {g, kWhole}, read);
}

Rule full_rule(const OperatorView& op, const ConvolutionAttributes& read, bool transposed) {
  RuleBuilder rule(op);
  const ImageDims dims = image_dims(&rule, op, read, transposed);
  const int m = rule.factor("m", read.filters);
  const int c = rule.reduced_factor("c", op.inputs[0].shape[1]);
  rule.extent_attr("num_filter", m);
  const std::pair<int, int> weight = transposed ? std::make_pair(c, m) : std::make_pair(m, c);
  return finish_convolution(&rule, dims, c, m, weight, read);
}

Rule any_rule(const OperatorView& op, const ConvolutionAttributes& read, bool transposed) {
  return read.groups > 1 ? grouped_rule(op, read, transposed) : full_rule(op, read, transposed);
}

Rule convolution_rule(const OperatorView& op) {
  const auto read = read_attributes(op, true);
  if (!read) return Rule();
  return any_rule(op, *read, false);
}

bool is_onednn_deconvolution(const TensorType& data) {
  return data.itemsize == 4 && data.shape.size() == 4;
}

Rule deconvolution_rule(const OperatorView& op) {
  const auto read = read_attributes(op, false);
  // See takes_variable_only(): its weight cannot be put together from tiles.
  if (!read || is_onednn_deconvolution(op.inputs[0])) return Rule();
  return any_rule(op, *read, true);
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
  (*registry)["Convolution_v1"] = convolution_rule;
  (*registry)["Deconvolution"] = deconvolution_rule;
}

}  // namespace soybean
