#include "lower/parallel_graph.h"

#include <algorithm>
#include <map>
#include <set>
#include <tuple>

#include "rules/rule.h"

namespace soybean {
namespace {

// Marks a node so that MXNet's elimination of common subexpressions, which
// compares operator, attributes and inputs, keeps it apart from others alike: the
// branches of one tensor must stay branches, and nothing that a control
// dependency names may vanish.
constexpr const char* kBranch = "__soybean_branch__";

// A use of an entry: an input of a node, or a head.
struct EdgeUse {
  bool head;
  size_t node, input;  // node: the position in nodes or heads
};

class LocalSums {
 public:
  explicit LocalSums(const ParallelGraph& graph) : old_(graph) {}

  ParallelGraph run() {
    find_uses();
    position_.resize(old_.nodes.size());
    for (size_t i = 0; i < old_.nodes.size(); ++i) {
      ParallelNode node = old_.nodes[i];
      for (size_t k = 0; k < node.inputs.size(); ++k) node.inputs[k] = redirected(false, i, k);
      position_[i] = static_cast<int>(new_.nodes.size());
      new_.nodes.push_back(std::move(node));
      for (size_t k = 0; k < old_.nodes[i].outputs.size(); ++k) {
        branch({static_cast<int>(i), static_cast<int>(k)});
      }
    }
    for (size_t h = 0; h < old_.heads.size(); ++h) new_.heads.push_back(redirected(true, h, 0));
    new_.variables = old_.variables;
    new_.outputs = old_.outputs;
    return std::move(new_);
  }

 private:
  void find_uses() {
    for (size_t i = 0; i < old_.nodes.size(); ++i) {
      for (size_t k = 0; k < old_.nodes[i].inputs.size(); ++k) {
        uses_[old_.nodes[i].inputs[k]].push_back({false, i, k});
      }
    }
    for (size_t h = 0; h < old_.heads.size(); ++h) uses_[old_.heads[h]].push_back({true, h, 0});
  }

  Entry redirected(bool head, size_t node, size_t input) const {
    const auto it = redirected_.find({head, node, input});
    if (it != redirected_.end()) return it->second;
    const Entry old = head ? old_.heads[node] : old_.nodes[node].inputs[input];
    return {position_[static_cast<size_t>(old.node)], old.index};
  }

  // A new identity of `source` (an entry of the new graph), on its device, for a layer.
  Entry identity(Entry source, int layer) {
    const ParallelNode& from = new_.nodes[static_cast<size_t>(source.node)];
    ParallelNode node;
    node.op = "_copy";
    node.name = from.name + "~" + std::to_string(source.index) + "." + std::to_string(count_);
    node.device = from.device;
    node.attrs = {{kBranch, std::to_string(count_++)}};
    node.inputs = {source};
    node.outputs = {from.outputs[static_cast<size_t>(source.index)]};
    node.requires_grad = from.requires_grad;
    node.layer = layer;
    new_.nodes.push_back(std::move(node));
    return {static_cast<int>(new_.nodes.size()) - 1, 0};
  }

  void branch(Entry old) {
    const auto it = uses_.find(old);
    if (it == uses_.end()) return;
    const ParallelNode& node = old_.nodes[static_cast<size_t>(old.node)];
    const EdgeUse& use = it->second[0];
    // A variable's gradient must be made on its own device, by a node there.
    const bool local = !use.head && old_.nodes[use.node].device == node.device &&
                       (!node.requires_grad || has_backward_node(old_.nodes[use.node].op));
    if (it->second.size() == 1 && (local || !node.is_variable())) return;
    const Entry source{position_[static_cast<size_t>(old.node)], old.index};
    spread(source, it->second, node.device, node.is_variable());
  }

  int layer_of(const EdgeUse& use) const { return use.head ? -1 : old_.nodes[use.node].layer; }

  // Gives `uses` the entry, at most kMaxUses to a node.
  void spread(Entry source, const std::vector<EdgeUse>& uses, int device, bool variable) {
    const int layer = layer_of(uses[0]);
    if (variable) source = identity(source, layer);
    if (uses.size() <= kMaxUses) {
      for (const EdgeUse& use : uses) {
        const bool local = !use.head && old_.nodes[use.node].device == device;
        redirected_[{use.head, use.node, use.input}] = local ? source : identity(source, layer_of(use));
      }
      return;
    }
    const size_t groups = std::min(kMaxUses, (uses.size() + kMaxUses - 1) / kMaxUses);
    for (size_t g = 0; g < groups; ++g) {
      const auto begin = uses.begin() + static_cast<std::ptrdiff_t>(g * uses.size() / groups);
      const auto end = uses.begin() + static_cast<std::ptrdiff_t>((g + 1) * uses.size() / groups);
      spread(identity(source, layer_of(*begin)), {begin, end}, device, false);
    }
  }

  const ParallelGraph& old_;
  ParallelGraph new_;
  std::map<Entry, std::vector<EdgeUse>> uses_;
  std::map<std::tuple<bool, size_t, size_t>, Entry> redirected_;
  std::vector<int> position_;  // of an old node in the new graph
  int count_ = 0;
};

ParallelGraph with_distinct_nodes(ParallelGraph graph) {
  std::set<std::tuple<std::string, int, std::vector<Entry>, Attributes>> seen;
  int copies = 0;
  for (ParallelNode& node : graph.nodes) {
    // MXNet never merges operators that are written in Python.
    if (node.is_variable() || takes_hidden_attributes(node.op)) continue;
    if (!seen.emplace(node.op, node.device, node.inputs, node.attrs).second) {
      node.attrs[kBranch] = "copy " + std::to_string(copies++);
    }
  }
  return graph;
}

Json entry_json(Entry e) { return json_array({e.node, e.index, 0}); }

// Where MXNet finds an operator's device: in the node, or else at its first input.
bool is_placed_by_input(const ParallelGraph& graph, const ParallelNode& node) {
  if (!takes_hidden_attributes(node.op)) return false;
  if (node.inputs.empty() || node_of(graph, node.inputs[0]).device != node.device) {
    throw Error("operator '" + node.name + "' takes its first input from another device, or has none: MXNet cannot "
                "place an operator written in Python so");
  }
  return true;
}

Json node_json(const ParallelGraph& graph, const ParallelNode& node) {
  Json json = Json::object();
  json.set("op", Json(node.op));
  json.set("name", Json(node.name));
  Json attrs = Json::object();
  for (const auto& [key, value] : node.attrs) attrs.set(key, Json(value));
  if (!is_placed_by_input(graph, node)) attrs.set("__ctx_group__", Json("d" + std::to_string(node.device)));
  json.set("attrs", std::move(attrs));
  Json inputs = Json::array();
  for (const Entry& e : node.inputs) inputs.push(entry_json(e));
  json.set("inputs", std::move(inputs));
  if (!node.subgraphs.empty()) json.set("subgraphs", Json::parse(node.subgraphs));
  return json;
}

constexpr size_t kFirstState = 3;

}  // namespace

std::vector<bool> state_makers(const ParallelGraph& graph) {
  std::vector<bool> makers(graph.nodes.size(), false);
  for (size_t i = graph.nodes.size(); i-- > 0;) {
    const ParallelNode& node = graph.nodes[i];
    const size_t first = makers[i] ? 0 : node.op == "BatchNorm" ? kFirstState : node.inputs.size();
    for (size_t k = first; k < node.inputs.size(); ++k) {
      const Entry& e = node.inputs[k];
      if (!node_of(graph, e).is_variable()) makers[static_cast<size_t>(e.node)] = true;
    }
  }
  return makers;
}

Entry append(ParallelGraph* graph, ParallelNode node) {
  for (const Entry& e : node.inputs) {
    node.requires_grad = node.requires_grad || node_of(*graph, e).requires_grad;
  }
  if (stops_gradient(node.op)) node.requires_grad = false;
  graph->nodes.push_back(std::move(node));
  return {static_cast<int>(graph->nodes.size()) - 1, 0};
}

Traffic traffic(const ParallelGraph& graph) {
  Traffic t;
  for (const ParallelNode& node : graph.nodes) {
    for (const Entry& e : node.inputs) {
      const ParallelNode& from = graph.nodes[static_cast<size_t>(e.node)];
      if (from.device == node.device) continue;
      const int64_t bytes = byte_count(from.outputs[static_cast<size_t>(e.index)]);
      t.forward += bytes;
      if (from.requires_grad) t.backward += bytes;
      ++t.messages;
    }
  }
  return t;
}

Json bytes_json(const Traffic& traffic) {
  Json bytes = Json::object();
  bytes.set("forward", Json(traffic.forward));
  bytes.set("backward", Json(traffic.backward));
  bytes.set("total", Json(traffic.forward + traffic.backward));
  return bytes;
}

ParallelGraph without_dead_nodes(const ParallelGraph& graph) {
  std::vector<bool> live(graph.nodes.size(), false);
  for (const Entry& e : graph.heads) live[static_cast<size_t>(e.node)] = true;
  for (size_t i = graph.nodes.size(); i-- > 0;) {
    if (!live[i]) continue;
    for (const Entry& e : graph.nodes[i].inputs) live[static_cast<size_t>(e.node)] = true;
  }
  ParallelGraph out;
  out.variables = graph.variables;
  out.outputs = graph.outputs;
  std::vector<int> position(graph.nodes.size(), -1);
  const auto moved = [&](Entry e) { return Entry{position[static_cast<size_t>(e.node)], e.index}; };
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    if (!live[i]) continue;
    position[i] = static_cast<int>(out.nodes.size());
    out.nodes.push_back(graph.nodes[i]);
    for (Entry& e : out.nodes.back().inputs) e = moved(e);
  }
  for (const Entry& e : graph.heads) out.heads.push_back(moved(e));
  return out;
}

ParallelGraph without_idle_copies(const ParallelGraph& graph) {
  std::vector<int> uses(graph.nodes.size(), 0);
  for (const ParallelNode& node : graph.nodes) {
    for (const Entry& e : node.inputs) ++uses[static_cast<size_t>(e.node)];
  }
  for (const Entry& e : graph.heads) ++uses[static_cast<size_t>(e.node)];
  ParallelGraph out = graph;
  for (ParallelNode& node : out.nodes) {
    if (!has_backward_node(node.op)) continue;
    for (Entry& e : node.inputs) {
      const ParallelNode& copy = node_of(graph, e);
      if (copy.op != "_copy" || copy.device != node.device || uses[static_cast<size_t>(e.node)] != 1) continue;
      if (node_of(graph, copy.inputs[0]).device != node.device) e = copy.inputs[0];
    }
  }
  return without_dead_nodes(out);
}

ParallelGraph with_local_sums(const ParallelGraph& graph) {
  return with_distinct_nodes(LocalSums(graph).run());
}

ParallelGraph with_dims_between_devices(const ParallelGraph& graph) {
  ParallelGraph out = graph;
  out.nodes.clear();
  std::vector<int> position(graph.nodes.size(), -1);
  const auto moved = [&](Entry e) { return Entry{position[static_cast<size_t>(e.node)], e.index}; };
  const auto reshape = [&](Entry source, int device, const Shape& shape, const ParallelNode& user) {
    const ParallelNode& from = out.nodes[static_cast<size_t>(source.node)];
    ParallelNode node;
    node.op = shape.empty() ? "_np_reshape" : "expand_dims";
    node.name = user.name + "~dims" + std::to_string(out.nodes.size());
    node.device = device;
    node.attrs = shape.empty() ? Attributes{{"newshape", "()"}} : Attributes{{"axis", "0"}};
    node.inputs = {source};
    node.outputs = {{shape, from.outputs[static_cast<size_t>(source.index)].itemsize}};
    node.requires_grad = from.requires_grad;
    node.layer = user.layer;
    out.nodes.push_back(std::move(node));
    return Entry{static_cast<int>(out.nodes.size()) - 1, 0};
  };
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    ParallelNode node = graph.nodes[i];
    for (Entry& e : node.inputs) {
      e = moved(e);
      const int device = out.nodes[static_cast<size_t>(e.node)].device;
      const Shape& shape = out.nodes[static_cast<size_t>(e.node)].outputs[static_cast<size_t>(e.index)].shape;
      if (device == node.device || !shape.empty()) continue;
      e = reshape(reshape(e, device, {1}, node), node.device, {}, node);
    }
    position[i] = static_cast<int>(out.nodes.size());
    out.nodes.push_back(std::move(node));
  }
  for (Entry& e : out.heads) e = moved(e);
  return out;
}

std::string symbol_json(const ParallelGraph& graph) {
  Json nodes = Json::array(), arguments = Json::array(), rows = Json::array(), heads = Json::array();
  std::vector<int64_t> before;  // what the next node follows: the one before it, and those that could not follow it
  int64_t row = 0;
  rows.push(Json(row));
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    const ParallelNode& node = graph.nodes[i];
    if (node.is_variable()) arguments.push(Json(static_cast<int>(i)));
    Json json = node_json(graph, node);
    const bool follows = may_follow(node.op);
    if (follows && !before.empty()) json.set("control_deps", json_array(before));
    if (follows) before.clear();
    before.push_back(static_cast<int64_t>(i));
    nodes.push(std::move(json));
    row += static_cast<int64_t>(node.outputs.size());
    rows.push(Json(row));
  }
  for (const Entry& e : graph.heads) heads.push(entry_json(e));
  Json version = Json::array();
  version.push(Json("int"));
  version.push(Json(10901));
  Json attrs = Json::object();
  attrs.set("mxnet_version", std::move(version));
  Json symbol = Json::object();
  symbol.set("nodes", std::move(nodes));
  symbol.set("arg_nodes", std::move(arguments));
  symbol.set("node_row_ptr", std::move(rows));
  symbol.set("heads", std::move(heads));
  symbol.set("attrs", std::move(attrs));
  return symbol.text();
}

}  // namespace soybean
