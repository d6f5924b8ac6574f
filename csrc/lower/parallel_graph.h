// The parallel graph: nodes of MXNet operators, each on a device.
#ifndef SOYBEAN_LOWER_PARALLEL_GRAPH_H_
#define SOYBEAN_LOWER_PARALLEL_GRAPH_H_

#include <string>
#include <vector>

#include "graph/graph.h"
#include "graph/json.h"
#include "tiling/conversion.h"

namespace soybean {

struct ParallelNode {
  std::string op;    // "null" for a variable
  std::string name;
  int device = 0;
  Attributes attrs;
  std::vector<Entry> inputs;
  std::vector<TensorType> outputs;
  bool requires_grad = false;  // the backward pass sends a gradient through its outputs
  std::string subgraphs;
  // For the schedule (lower/schedule.h): the operator of the serial graph that it is for, or -1;
  // floating-point operations, forward, where it computes a part of that operator; and whether
  // it sums over indices.
  int layer = -1;
  double operations = 0;
  bool reduces = false;

  bool is_variable() const { return op == "null"; }
};

// Which part of which serial tensor something of the parallel graph is.
struct Tile {
  std::string name;  // of the variable node; empty for a head
  int source;        // a node of the serial graph, or the number of a result
  int device;
  Region region;
};

struct ParallelGraph {
  std::vector<ParallelNode> nodes;  // in the order of execution
  std::vector<Entry> heads;
  std::vector<Tile> variables;  // of the variable nodes, and of tiles that nothing reads
  std::vector<Tile> outputs;    // of the heads; `source` counts the program's results
  std::vector<int> fills;       // variable nodes that stand for what other devices hold (local_fills.h)
};

// Appends a node: its first output. It gets a gradient where an input has one,
// unless its operator stops it.
Entry append(ParallelGraph* graph, ParallelNode node);

inline const ParallelNode& node_of(const ParallelGraph& graph, Entry e) {
  return graph.nodes[static_cast<size_t>(e.node)];
}
inline const TensorType& type_of(const ParallelGraph& graph, Entry e) {
  return node_of(graph, e).outputs[static_cast<size_t>(e.index)];
}

// Without the nodes that no head depends on: MXNet does not expect them.
ParallelGraph without_dead_nodes(const ParallelGraph& graph);

// What crosses devices: every edge between two devices once forward, and once
// backward if it has a gradient.
struct Traffic {
  int64_t forward = 0, backward = 0;  // bytes
  int64_t messages = 0;
};
Traffic traffic(const ParallelGraph& graph);
// The bytes as plans and lowered programs state them (docs/interface.md).
Json bytes_json(const Traffic& traffic);

// Without the copies of what another device sends which one operator alone takes, where
// that operator may take it itself: MXNet's own copy between the devices brings it, and the
// gradient goes back as the operator makes it.
ParallelGraph without_idle_copies(const ParallelGraph& graph);

// Rewrites the edges so that MXNet's gradient sums are right and stay local:
// where a tensor has several uses, each use on another device gets it through
// an identity of its own on the tensor's device, and no tensor has more than
// kMaxUses uses (hazards 1 and 2 of docs/design.md). No two nodes of the result
// are alike, so that MXNet merges none.
constexpr size_t kMaxUses = 4;
ParallelGraph with_local_sums(const ParallelGraph& graph);

// MXNet cannot copy a tensor without dims between devices: it travels with one.
ParallelGraph with_dims_between_devices(const ParallelGraph& graph);

// The nodes that make the states of a BatchNorm, its inputs from the fourth on. MXNet does
// not take a state whose node follows one that takes something from another device, be it by
// a control dependency alone.
std::vector<bool> state_makers(const ParallelGraph& graph);

// The graph as text for MXNet to load. The order of `nodes` is fixed by control
// dependencies: the variables, which are the arguments in the order in which their
// gradients are asked for, and then the operators (lower/schedule.h).
std::string symbol_json(const ParallelGraph& graph);

}  // namespace soybean

#endif  // SOYBEAN_LOWER_PARALLEL_GRAPH_H_
