#include "graph/expand_batch_norm.h"

#include <algorithm>
#include <cstdlib>
#include <set>
#include <string>

#include "kernels/binned_sum.h"
#include "rules/rule.h"

namespace soybean {
namespace {

struct BatchNormAttributes {
  int64_t axis = 1;
  double momentum = 0.9;
  bool fix_gamma = true, use_global_stats = false;
  std::string eps = "0.001";
};

bool is_true(const std::string& text) { return text == "True" || text == "true" || text == "1"; }

BatchNormAttributes read_attributes(const Node& node) {
  BatchNormAttributes a;
  for (const auto& [key, value] : node.attrs) {
    if (key == "axis") a.axis = std::strtoll(value.c_str(), nullptr, 10);
    if (key == "momentum") a.momentum = std::strtod(value.c_str(), nullptr);
    if (key == "eps") a.eps = value;
    if (key == "fix_gamma") a.fix_gamma = is_true(value);
    if (key == "use_global_stats") a.use_global_stats = is_true(value);
  }
  return a;
}

// Copies a graph node by node, writing BatchNorm out on the way.
class Expander {
 public:
  explicit Expander(const SerialProgram& program)
      : program_(program), serial_(program.graph), names_(node_names(serial_)) {}

  ExpandedGraph run() {
    for (size_t i = 0; i < serial_.nodes().size(); ++i) {
      const Node& node = serial_.nodes()[i];
      if (is_expandable(node)) {
        names_.erase(node.name);  // the last of its primitives takes the name
        entries_.push_back({node.op == "_contrib_BatchNormWithReLU" ? expand_with_relu(node) : expand(node)});
      } else {
        copy(node);
      }
    }
    std::vector<Entry> outputs;
    for (const Entry& e : serial_.outputs()) outputs.push_back(mapped(e));
    return {Graph(std::move(nodes_), std::move(outputs)), std::move(statistics_),
            program_.training};
  }

 private:
  // The first output alone is visible (output_mean_var shows more): the form
  // that layers use. The others keep the fused operator.
  bool is_expandable(const Node& node) const {
    if (!is_batch_norm(node.op) || node.inputs.size() != 5 || node.outputs.size() != 1) return false;
    const BatchNormAttributes a = read_attributes(node);
    if (!program_.training || a.use_global_stats) return false;
    const int64_t rank = static_cast<int64_t>(node.outputs[0].shape.size());
    if (a.axis < -rank || a.axis >= rank) return false;
    for (size_t i = 1; i < 5; ++i) {
      if (serial_.type(node.inputs[i]).shape.size() != 1) return false;
    }
    return serial_.node(node.inputs[3].node).is_variable() &&
           serial_.node(node.inputs[4].node).is_variable();
  }

  Entry mapped(Entry e) const {
    return entries_[static_cast<size_t>(e.node)][static_cast<size_t>(e.index)];
  }

  void copy(const Node& node) {
    Node n = node;
    for (Entry& e : n.inputs) e = mapped(e);
    append(std::move(n));
    std::vector<Entry> outs;
    for (size_t i = 0; i < node.outputs.size(); ++i) {
      outs.push_back({static_cast<int>(nodes_.size()) - 1, static_cast<int>(i)});
    }
    entries_.push_back(std::move(outs));
  }

  Entry add(const std::string& op, const std::string& name, Attributes attrs,
            std::vector<Entry> inputs, TensorType type) {
    return add_several(op, name, std::move(attrs), std::move(inputs), {std::move(type)});
  }

  // A node of several outputs: the first.
  Entry add_several(const std::string& op, const std::string& name, Attributes attrs,
                    std::vector<Entry> inputs, std::vector<TensorType> outputs) {
    Node n;
    n.op = op;
    n.name = fresh_name(name, &names_);
    n.attrs = std::move(attrs);
    n.inputs = std::move(inputs);
    n.outputs = std::move(outputs);
    append(std::move(n));
    return {static_cast<int>(nodes_.size()) - 1, 0};
  }

  void append(Node node) {
    gradients_.push_back(carries_gradient(node, gradients_));
    nodes_.push_back(std::move(node));
  }

  bool passes_gradient(Entry e) const { return gradients_[static_cast<size_t>(e.node)]; }

  const TensorType& type(Entry e) const {
    return nodes_[static_cast<size_t>(e.node)].outputs[static_cast<size_t>(e.index)];
  }

  Entry cast(Entry x, int itemsize, const std::string& name) {
    if (type(x).itemsize == itemsize) return x;
    return add("Cast", name, {{"dtype", float_name(itemsize)}}, {x}, {type(x).shape, itemsize});
  }

  Entry expand(const Node& node) {
    const BatchNormAttributes a = read_attributes(node);
    const size_t rank = node.outputs[0].shape.size();
    const Operands operands{mapped(node.inputs[0]), mapped(node.inputs[1]), mapped(node.inputs[2]),
                            static_cast<size_t>(a.axis < 0 ? a.axis + static_cast<int64_t>(rank) : a.axis)};
    const bool has_kernel = program_.own_operators && type(operands.gamma).itemsize >= 4;
    return has_kernel ? expand_with_kernels(node, a, operands) : expand_to_primitives(node, a, operands);
  }

  Entry expand_with_relu(const Node& node) {
    Node plain = node;
    plain.name = fresh_name(node.name + "_normalised", &names_);
    names_.erase(plain.name);
    return add("Activation", node.name, {{"act_type", "relu"}}, {expand(plain)}, node.outputs[0]);
  }

  struct Operands {
    Entry data, gamma, beta;
    size_t axis;
  };

  Entry expand_with_kernels(const Node& node, const BatchNormAttributes& a, const Operands& in) {
    const std::string& name = node.name;
    const TensorType vector = type(in.gamma);
    const int64_t channels = vector.shape[0];
    const std::string axis = std::to_string(in.axis);
    const Entry x = cast(in.data, std::max(4, type(in.data).itemsize), name + "_in");
    const int64_t bins = type(x).itemsize == 8 ? kBins : 1;
    const Entry sums = add("_soybean_mx_channel_sums", name + "_sums", {{"axis", axis}, {"bins", std::to_string(bins)}},
                           {x}, {{2 * bins, channels}, 8});
    const Entry factors =
        add_several("_soybean_mx_batch_norm_factors", name + "_factors",
                    {{"count", std::to_string(element_count(type(x).shape) / channels)},
                     {"eps", a.eps},
                     {"fix_gamma", a.fix_gamma ? "True" : "False"}},
                    {sums, in.gamma, in.beta}, {{{2, channels}, vector.itemsize}, vector, vector});
    add_statistics(node, a, blocked({factors.node, 1}, name + "_mean"), blocked({factors.node, 2}, name + "_var"));
    const Entry factor =
        add_several("SliceChannel", name + "_factor", {{"num_outputs", "2"}, {"axis", "0"}, {"squeeze_axis", "True"}},
                    {factors}, {vector, vector});
    return add("_soybean_mx_batch_norm_shift", name, {{"axis", axis}, {"eps", a.eps}},
               {in.data, factor, {factor.node, 1}}, type(in.data));
  }

  Entry expand_to_primitives(const Node& node, const BatchNormAttributes& a, const Operands& in) {
    const std::string& name = node.name;
    const Entry gamma = factor(a, in.gamma, name);
    // Statistics are kept in gamma's precision.
    const Entry x = cast(in.data, type(gamma).itemsize, name + "_in");
    const Entry mean = channel_mean(x, in.axis, name + "_mean");
    const Entry mean_value = blocked(mean, name + "_mean_value");
    const Entry d = centred(x, mean_value, in.axis, name);
    const Entry squared = add("square", name + "_squared", {}, {d}, type(x));
    const Entry var = channel_mean(squared, in.axis, name + "_var");
    add_statistics(node, a, mean_value, blocked(var, name + "_var_value"));
    const Entry slope = scale(a, gamma, var, name);
    const Entry out = scaled(d, slope, beta_through(slope, in.beta, mean, mean_value, name), in.axis, name);
    return cast(out, type(in.data).itemsize, name + "_out");
  }

  // MXNet moves the statistics in BatchNorm's backward pass: never without one.
  void add_statistics(const Node& node, const BatchNormAttributes& a, Entry mean, Entry var) {
    for (size_t i = 0; i < 3; ++i) {
      if (!passes_gradient(mapped(node.inputs[i]))) continue;
      add_statistic(mean, node.inputs[3], a);
      add_statistic(var, node.inputs[4], a);
      return;
    }
  }

  void add_statistic(Entry value, Entry variable, const BatchNormAttributes& a) {
    // MXNet's BatchNorm keeps its momentum in single precision.
    statistics_.push_back({value, mapped(variable).node, static_cast<float>(a.momentum)});
  }

  // One value per channel in the shape (1, channels, 1, ...), ready to broadcast.
  Entry as_row(Entry vector, size_t rank, size_t axis, const std::string& name) {
    TensorType row{Shape(rank, 1), type(vector).itemsize};
    row.shape[axis] = type(vector).shape[0];
    return add("Reshape", name, {{"shape", shape_text(row.shape)}}, {vector}, row);
  }

  Entry centred(Entry x, Entry mean, size_t axis, const std::string& name) {
    const Entry row = as_row(mean, type(x).shape.size(), axis, name + "_mean_row");
    return add("broadcast_sub", name + "_centred", {}, {x, row}, type(x));
  }

  // gamma * rsqrt(var + eps), by channel.
  Entry scale(const BatchNormAttributes& a, Entry gamma, Entry var, const std::string& name) {
    const Entry shifted = add("_plus_scalar", name + "_var_eps", {{"scalar", a.eps}}, {var}, type(var));
    const Entry r = add("rsqrt", name + "_rstd", {}, {shifted}, type(var));
    return add("elemwise_mul", name + "_scale", {}, {gamma, r}, type(gamma));
  }

  // d * factor + beta, by channel. Images in single precision: as a convolution of
  // one pixel and one channel per group, whose backward pass (sums over the batch and
  // the pixels) oneDNN does many times faster than MXNet does that of broadcasting.
  Entry scaled(Entry d, Entry factor, Entry beta, size_t axis, const std::string& name) {
    const TensorType t = type(d);
    if (t.shape.size() == 4 && axis == 1 && t.itemsize == 4) {
      const int64_t channels = t.shape[1];
      const Entry weight = add("Reshape", name + "_weight", {{"shape", shape_text({channels, 1, 1, 1})}},
                               {factor}, {{channels, 1, 1, 1}, t.itemsize});
      const std::string count = std::to_string(channels);
      return add("Convolution", name,
                 {{"kernel", "(1, 1)"}, {"num_filter", count}, {"num_group", count}, {"no_bias", "False"}},
                 {d, weight, beta}, t);
    }
    const size_t rank = t.shape.size();
    const Entry product = add("broadcast_mul", name + "_scaled", {},
                              {d, as_row(factor, rank, axis, name + "_scale_row")}, t);
    return add("broadcast_add", name, {}, {product, as_row(beta, rank, axis, name + "_beta_row")}, t);
  }

  // With fix_gamma the factor is one, and gamma gets a gradient of zero.
  Entry factor(const BatchNormAttributes& a, Entry gamma, const std::string& name) {
    if (!a.fix_gamma) return gamma;
    const Entry zero = add("_mul_scalar", name + "_no_gamma", {{"scalar", "0"}}, {gamma}, type(gamma));
    return add("_plus_scalar", name + "_fixed_gamma", {{"scalar", "1"}}, {zero}, type(gamma));
  }

  Entry blocked(Entry e, const std::string& name) { return add("BlockGrad", name, {}, {e}, type(e)); }

  // beta - value(factor) * (mean - value(mean)): beta, and the way to mean.
  Entry beta_through(Entry factor, Entry beta, Entry mean, Entry mean_value, const std::string& name) {
    const Entry zero = add("elemwise_sub", name + "_zero_of_mean", {}, {mean, mean_value}, type(mean));
    const Entry moved = add("elemwise_mul", name + "_zero_of_beta", {},
                            {blocked(factor, name + "_scale_value"), zero}, type(mean));
    return add("elemwise_sub", name + "_beta_of_mean", {}, {beta, moved}, type(beta));
  }

  // The mean of every channel, shape (channels,). Over the pixels of images by pooling,
  // which MXNet does many times faster than reductions; in two steps, as oneDNN's
  // backward pass is slow for large windows.
  Entry channel_mean(Entry x, size_t axis, const std::string& name) {
    Entry pooled = x;
    if (axis == 1 && type(x).shape.size() == 4) {
      pooled = pooled_over(pooled, window(type(x).shape[2]), window(type(x).shape[3]), name + "_of_windows");
      pooled = pooled_over(pooled, type(pooled).shape[2], type(pooled).shape[3], name + "_of_pixels");
    }
    return add("mean", name, {{"axis", std::to_string(axis)}, {"exclude", "True"}}, {pooled},
               {{type(x).shape[axis]}, type(x).itemsize});
  }

  // The largest proper divisor up to 32, so that windows are equal.
  static int64_t window(int64_t extent) {
    constexpr int64_t kSmallImage = 8;
    if (extent <= kSmallImage) return 1;
    for (int64_t d = std::min<int64_t>(32, extent / 2); d > 1; --d) {
      if (extent % d == 0) return d;
    }
    return 1;
  }

  Entry pooled_over(Entry x, int64_t height, int64_t width, const std::string& name) {
    if (height == 1 && width == 1) return x;
    TensorType pooled = type(x);
    pooled.shape[2] /= height;
    pooled.shape[3] /= width;
    const std::string kernel = shape_text({height, width});
    return add("Pooling", name, {{"pool_type", "avg"}, {"kernel", kernel}, {"stride", kernel}}, {x}, pooled);
  }

  const SerialProgram& program_;
  const Graph& serial_;
  std::vector<Node> nodes_;
  std::vector<bool> gradients_;  // by node: whether the backward pass goes through it
  std::vector<std::vector<Entry>> entries_;  // by serial node: where its outputs are now
  std::vector<Statistic> statistics_;
  std::set<std::string> names_;
};

}  // namespace

// SyncBatchNorm takes its statistics over the batches of several devices, which here are
// the parts of one.
bool is_batch_norm(const std::string& op) {
  static const std::set<std::string> operators = {"BatchNorm", "BatchNorm_v1", "_contrib_SyncBatchNorm",
                                                  "_contrib_BatchNormWithReLU"};
  return operators.count(op) > 0;
}

ExpandedGraph expand_batch_norm(const SerialProgram& program) { return Expander(program).run(); }

}  // namespace soybean
