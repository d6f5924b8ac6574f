#include "graph/graph.h"

#include <set>

namespace soybean {
namespace {

void check_types(const Node& node) {
  if (node.outputs.empty()) throw Error("node '" + node.name + "' has no output");
  for (const TensorType& type : node.outputs) {
    for (const int64_t extent : type.shape) {
      if (extent < 1) {
        throw Error("tensor '" + node.name + "' has shape " + shape_text(type.shape) +
                    ": every extent must be known and at least 1");
      }
    }
    if (type.itemsize < 1 || type.itemsize > 16) {
      throw Error("tensor '" + node.name + "' has " + std::to_string(type.itemsize) +
                  " bytes per element: 1 to 16 are possible");
    }
  }
}

void check_inputs(const std::vector<Node>& nodes, size_t i) {
  const Node& node = nodes[i];
  if (node.is_variable() && !node.inputs.empty()) {
    throw Error("variable '" + node.name + "' has inputs");
  }
  for (const Entry& e : node.inputs) {
    if (e.node < 0 || static_cast<size_t>(e.node) >= i) {
      throw Error("node '" + node.name + "' refers to node " + std::to_string(e.node) +
                  ", which does not stand before it");
    }
    const size_t count = nodes[static_cast<size_t>(e.node)].outputs.size();
    if (e.index < 0 || static_cast<size_t>(e.index) >= count) {
      throw Error("node '" + node.name + "' refers to output " + std::to_string(e.index) + " of '" +
                  nodes[static_cast<size_t>(e.node)].name + "', which has " +
                  std::to_string(count));
    }
  }
}

}  // namespace

Graph::Graph(std::vector<Node> nodes, std::vector<Entry> outputs)
    : nodes_(std::move(nodes)), outputs_(std::move(outputs)) {
  std::set<std::string> names;
  for (size_t i = 0; i < nodes_.size(); ++i) {
    const Node& n = nodes_[i];
    if (n.name.empty()) throw Error("node " + std::to_string(i) + " (" + n.op + ") has no name");
    if (!names.insert(n.name).second) throw Error("two nodes are named '" + n.name + "'");
    check_types(n);
    check_inputs(nodes_, i);
  }
  if (outputs_.empty()) throw Error("the graph has no output");
  for (const Entry& e : outputs_) {
    if (e.node < 0 || static_cast<size_t>(e.node) >= nodes_.size() || e.index < 0 ||
        static_cast<size_t>(e.index) >= node(e.node).outputs.size()) {
      throw Error("an output of the graph refers to output " + std::to_string(e.index) +
                  " of node " + std::to_string(e.node) + ", which does not exist");
    }
  }
}

std::string Graph::tensor_name(Entry e) const {
  const std::string& name = node(e.node).name;
  return e.index == 0 ? name : name + ":" + std::to_string(e.index);
}

std::string fresh_name(std::string name, std::set<std::string>* taken) {
  while (!taken->insert(name).second) name += "_";
  return name;
}

std::set<std::string> node_names(const Graph& graph) {
  std::set<std::string> names;
  for (const Node& node : graph.nodes()) names.insert(node.name);
  return names;
}

int64_t element_count(const Shape& shape) {
  int64_t n = 1;
  for (const int64_t extent : shape) n *= extent;
  return n;
}

std::string shape_text(const Shape& shape) {
  std::string out = "(";
  for (size_t i = 0; i < shape.size(); ++i) {
    if (i > 0) out += ", ";
    out += std::to_string(shape[i]);
  }
  return out + (shape.size() == 1 ? ",)" : ")");
}

}  // namespace soybean
