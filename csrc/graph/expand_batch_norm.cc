#include "graph/expand_batch_norm.h"

#include <cstdlib>
#include <set>
#include <string>

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

const char* type_name(int itemsize) {
  return itemsize == 2 ? "float16" : itemsize == 8 ? "float64" : "float32";
}

// Copies a graph node by node, writing BatchNorm out on the way.
class Expander {
 public:
  explicit Expander(const SerialProgram& program) : program_(program), serial_(program.graph) {
    for (const Node& node : serial_.nodes()) names_.insert(node.name);
  }

  ExpandedGraph run() {
    for (size_t i = 0; i < serial_.nodes().size(); ++i) {
      const Node& node = serial_.nodes()[i];
      if (is_expandable(node)) {
        names_.erase(node.name);  // the last of its primitives takes the name
        entries_.push_back({expand(node)});
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
    if (node.op != "BatchNorm" || node.inputs.size() != 5 || node.outputs.size() != 1) return false;
    const BatchNormAttributes a = read_attributes(node);
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

  std::string fresh_name(std::string name) {
    while (!names_.insert(name).second) name += "_";
    return name;
  }

  Entry add(const std::string& op, const std::string& name, Attributes attrs,
            std::vector<Entry> inputs, TensorType type) {
    Node n;
    n.op = op;
    n.name = fresh_name(name);
    n.attrs = std::move(attrs);
    n.inputs = std::move(inputs);
    n.outputs = {std::move(type)};
    append(std::move(n));
    return {static_cast<int>(nodes_.size()) - 1, 0};
  }

  void append(Node node) {
    bool gradient = node.is_variable() && node.requires_grad;
    for (const Entry& e : node.inputs) gradient = gradient || passes_gradient(e);
    gradients_.push_back(gradient && !stops_gradient(node.op));
    nodes_.push_back(std::move(node));
  }

  bool passes_gradient(Entry e) const { return gradients_[static_cast<size_t>(e.node)]; }

  const TensorType& type(Entry e) const {
    return nodes_[static_cast<size_t>(e.node)].outputs[static_cast<size_t>(e.index)];
  }

  Entry cast(Entry x, int itemsize, const std::string& name) {
    if (type(x).itemsize == itemsize) return x;
    return add("Cast", name, {{"dtype", type_name(itemsize)}}, {x}, {type(x).shape, itemsize});
  }

  Entry expand(const Node& node) {
    const BatchNormAttributes a = read_attributes(node);
    const Entry data = mapped(node.inputs[0]), gamma = mapped(node.inputs[1]);
    const size_t rank = type(data).shape.size();
    const size_t axis = static_cast<size_t>(a.axis < 0 ? a.axis + static_cast<int64_t>(rank) : a.axis);
    const int itemsize = type(gamma).itemsize;  // statistics are kept in gamma's precision

    TensorType row{Shape(rank, 1), itemsize};  // one value per channel, ready to broadcast
    row.shape[axis] = type(data).shape[axis];
    const TensorType flat{{row.shape[axis]}, itemsize};
    const TensorType full{type(data).shape, itemsize};
    const auto name = [&](const char* part) { return node.name + "_" + part; };
    const auto widened = [&](Entry vector, const char* part) {
      return add("Reshape", name(part), {{"shape", shape_text(row.shape)}}, {vector}, row);
    };
    const Attributes over_batch{
        {"axis", std::to_string(axis)}, {"exclude", "True"}, {"keepdims", "True"}};

    const Entry x = cast(data, itemsize, name("in"));
    const bool batch_statistics = program_.training && !a.use_global_stats;
    const Entry mean = batch_statistics ? add("mean", name("mean"), over_batch, {x}, row)
                                        : widened(mapped(node.inputs[3]), "mean");
    const Entry centred = add("broadcast_sub", name("centred"), {}, {x, mean}, full);
    Entry var;
    if (batch_statistics) {
      const Entry squared = add("square", name("squared"), {}, {centred}, full);
      var = add("mean", name("var"), over_batch, {squared}, row);
      // MXNet moves the statistics in BatchNorm's backward pass: never without one.
      const Entry beta = mapped(node.inputs[2]);
      if (passes_gradient(data) || passes_gradient(gamma) || passes_gradient(beta)) {
        add_statistic(mean, flat, node.inputs[3], a.momentum, name("batch_mean"));
        add_statistic(var, flat, node.inputs[4], a.momentum, name("batch_var"));
      }
    } else {
      var = widened(mapped(node.inputs[4]), "var");
    }
    const Entry shifted = add("_plus_scalar", name("var_eps"), {{"scalar", a.eps}}, {var}, row);
    Entry scale = add("rsqrt", name("rstd"), {}, {shifted}, row);
    scale = add("elemwise_mul", name("scale"), {}, {scale, scale_of_gamma(a, gamma, widened, name)},
                row);
    const Entry scaled = add("broadcast_mul", name("scaled"), {}, {centred, scale}, full);
    const Entry beta = widened(mapped(node.inputs[2]), "beta");
    const Entry out = add("broadcast_add", node.name, {}, {scaled, beta}, full);
    return cast(out, type(data).itemsize, name("out"));
  }

  // With fix_gamma the factor is one, and gamma gets a gradient of zero.
  template <typename Widened, typename Name>
  Entry scale_of_gamma(const BatchNormAttributes& a, Entry gamma, Widened widened, Name name) {
    const Entry row = widened(gamma, "gamma");
    if (!a.fix_gamma) return row;
    const TensorType t = type(row);
    const Entry zero = add("_mul_scalar", name("gamma_zero"), {{"scalar", "0"}}, {row}, t);
    return add("_plus_scalar", name("gamma_one"), {{"scalar", "1"}}, {zero}, t);
  }

  void add_statistic(Entry value, const TensorType& flat, Entry variable, double momentum,
                     const std::string& name) {
    const Entry vector =
        add("Reshape", name, {{"shape", shape_text(flat.shape)}}, {value}, flat);
    const Entry blocked = add("BlockGrad", name + "_value", {}, {vector}, flat);
    // MXNet's BatchNorm keeps its momentum in single precision.
    statistics_.push_back({blocked, mapped(variable).node, static_cast<float>(momentum)});
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

ExpandedGraph expand_batch_norm(const SerialProgram& program) { return Expander(program).run(); }

}  // namespace soybean
