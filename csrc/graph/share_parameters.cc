#include "graph/share_parameters.h"

#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "graph/expand_batch_norm.h"
#include "rules/rule.h"

namespace soybean {
namespace {

// BatchNorm writes into a gamma that is fixed: into the parameter itself, not into a copy.
bool may_take_a_copy(const Graph& graph, int user, size_t input) {
  return !is_batch_norm(graph.node(user).op) && !takes_variable_only(graph, user, input);
}

// The variables to be copied: those that are held once and that at least two operators take.
std::set<int> shared_variables(const Graph& graph) {
  std::map<int, std::set<int>> users;
  std::set<int> bound;  // to be taken as they are
  for (size_t i = 0; i < graph.nodes().size(); ++i) {
    const Node& node = graph.nodes()[i];
    for (size_t k = 0; k < node.inputs.size(); ++k) {
      const Node& source = graph.node(node.inputs[k].node);
      if (!source.is_held_once()) continue;
      users[node.inputs[k].node].insert(static_cast<int>(i));
      if (!may_take_a_copy(graph, static_cast<int>(i), k)) bound.insert(node.inputs[k].node);
    }
  }
  std::set<int> shared;
  for (const auto& [variable, operators] : users) {
    if (operators.size() > 1 && bound.count(variable) == 0) shared.insert(variable);
  }
  return shared;
}

}  // namespace

SerialProgram share_parameters(const SerialProgram& program) {
  const Graph& graph = program.graph;
  const std::set<int> shared = shared_variables(graph);
  std::set<std::string> names = node_names(graph);
  std::vector<Node> nodes;
  std::vector<int> place;     // of each node of `graph` in `nodes`
  std::map<int, int> copies;  // variable of `graph` -> node of `nodes`
  const auto copy_of = [&](int variable) {
    const auto [known, fresh] = copies.emplace(variable, static_cast<int>(nodes.size()));
    if (fresh) {
      const Node& source = graph.node(variable);
      Node copy;
      copy.op = "_copy";
      copy.name = fresh_name(source.name + "_shared", &names);
      copy.inputs = {{place[static_cast<size_t>(variable)], 0}};
      copy.outputs = source.outputs;
      nodes.push_back(std::move(copy));
    }
    return Entry{known->second, 0};
  };
  for (const Node& original : graph.nodes()) {
    Node node = original;
    for (Entry& e : node.inputs) {
      e = shared.count(e.node) > 0 ? copy_of(e.node) : Entry{place[static_cast<size_t>(e.node)], e.index};
    }
    place.push_back(static_cast<int>(nodes.size()));
    nodes.push_back(std::move(node));
  }
  std::vector<Entry> outputs = graph.outputs();
  for (Entry& e : outputs) e.node = place[static_cast<size_t>(e.node)];
  return {Graph(std::move(nodes), std::move(outputs)), program.training, program.own_operators};
}

const Node& original(const Graph& graph, Entry e) {
  const Node& node = graph.node(e.node);
  if (node.op != "_copy") return node;
  const Node& source = graph.node(node.inputs[0].node);
  return source.is_variable() ? source : node;
}

}  // namespace soybean
