// The serial graph: what the user's program computes, on one device.
//
// A Graph is immutable once built and always valid: nodes stand in topological
// order, every input refers to an earlier node's existing output, every output
// has a known shape. A graph that breaks this cannot be constructed.
#ifndef SOYBEAN_GRAPH_GRAPH_H_
#define SOYBEAN_GRAPH_GRAPH_H_

#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <stdexcept>
#include <string>
#include <vector>

namespace soybean {

using Shape = std::vector<int64_t>;
using Attributes = std::map<std::string, std::string>;

// The only exception the core throws on bad input; the C interface turns it
// into a message. The text names the node, the tensor and the value.
class Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// What a tensor is to the executor.
enum class Role {
  kInput,        // fed by the caller on every step
  kParameter,    // kept between steps, updated by the optimizer
  kAuxiliary,    // kept between steps, updated by its operator (moving mean)
  kIntermediate  // computed
};

// Output `index` of node `node`.
struct Entry {
  int node = -1;
  int index = 0;
};

inline bool operator<(const Entry& a, const Entry& b) {
  return a.node != b.node ? a.node < b.node : a.index < b.index;
}
inline bool operator==(const Entry& a, const Entry& b) {
  return a.node == b.node && a.index == b.index;
}

// One output of a node.
struct TensorType {
  Shape shape;
  int itemsize = 4;  // bytes per element
};

struct GivenRule;  // graph/given_rule.h

struct Node {
  std::string op;    // MXNet's operator name; "null" for a variable
  std::string name;  // unique in the graph
  Attributes attrs;  // operator attributes, without MXNet's hidden __x__ ones
  std::vector<Entry> inputs;
  std::vector<TensorType> outputs;  // the visible outputs
  Role role = Role::kIntermediate;  // for variables: kInput, kParameter, kAuxiliary
  bool requires_grad = false;       // for variables: a gradient is asked for
  std::string subgraphs;            // the JSON text of a control-flow operator's bodies, or ""
  std::shared_ptr<const GivenRule> rule;  // how it may be cut, for an operator of the user's; or null

  bool is_variable() const { return op == "null"; }
  // A variable that gets a gradient holds each element once, or its copies would have
  // to be kept equal. What is fed or read only may be replicated.
  bool is_held_once() const { return is_variable() && (role == Role::kParameter || requires_grad); }
};

class Graph {
 public:
  // Throws Error when the parts do not form a valid graph.
  Graph(std::vector<Node> nodes, std::vector<Entry> outputs);

  const std::vector<Node>& nodes() const { return nodes_; }
  const Node& node(int i) const { return nodes_[static_cast<size_t>(i)]; }
  const std::vector<Entry>& outputs() const { return outputs_; }
  const TensorType& type(Entry e) const {
    return node(e.node).outputs[static_cast<size_t>(e.index)];
  }
  // "name" for a node with one visible output, "name:1" for the others.
  std::string tensor_name(Entry e) const;

 private:
  std::vector<Node> nodes_;
  std::vector<Entry> outputs_;
};

// The name, or, if the set has it, with as many underscores behind it as make it new. The set has it then.
std::string fresh_name(std::string name, std::set<std::string>* taken);
// The names of all nodes.
std::set<std::string> node_names(const Graph& graph);

int64_t element_count(const Shape& shape);
inline int64_t byte_count(const TensorType& t) {
  return element_count(t.shape) * t.itemsize;
}

// MXNet's name of the floating type of that many bytes.
inline const char* float_name(int itemsize) {
  return itemsize == 2 ? "float16" : itemsize == 8 ? "float64" : "float32";
}
std::string shape_text(const Shape& shape);  // "(2, 3)"

}  // namespace soybean

#endif  // SOYBEAN_GRAPH_GRAPH_H_
