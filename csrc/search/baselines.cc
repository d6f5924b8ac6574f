#include "search/baselines.h"

#include <algorithm>

#include "graph/share_parameters.h"

namespace soybean {
namespace {

using Wanted = std::function<bool(const Factor&)>;

// Keeps the ways to cut an operator with the most (or the fewest) cuts along factors
// that are wanted.
void keep_extreme(const Rule& rule, const Wanted& wanted, bool most,
                  std::vector<OperatorCuts>* domain) {
  if (!rule.known || domain->empty()) return;
  const auto count = [&](const OperatorCuts& cuts) {
    int n = 0;
    for (const int c : cuts) n += c >= 0 && wanted(rule.factors[static_cast<size_t>(c)]) ? 1 : 0;
    return n;
  };
  int best = count(domain->front());
  for (const OperatorCuts& cuts : *domain) best = most ? std::max(best, count(cuts)) : std::min(best, count(cuts));
  domain->erase(std::remove_if(domain->begin(), domain->end(),
                               [&](const OperatorCuts& cuts) { return count(cuts) != best; }),
                domain->end());
}

bool is_batch(const Factor& f) { return f.batch; }

// The rank of the largest parameter that an operator takes; 0 for none.
size_t weight_rank(const Graph& graph, int node) {
  size_t rank = 0;
  if (graph.node(node).op == "_copy") return rank;  // a weight's, for those that take it
  for (const Entry& e : graph.node(node).inputs) {
    const Node& source = original(graph, e);
    if (source.is_variable() && source.role == Role::kParameter) rank = std::max(rank, graph.type(e).shape.size());
  }
  return rank;
}

// For every node how many operators with weights lie on the longest way to it,
// itself included.
std::vector<int> weighted_depths(const Graph& graph) {
  std::vector<int> depth;
  for (size_t i = 0; i < graph.nodes().size(); ++i) {
    int deepest = 0;
    for (const Entry& e : graph.nodes()[i].inputs) deepest = std::max(deepest, depth[static_cast<size_t>(e.node)]);
    depth.push_back(deepest + (weight_rank(graph, static_cast<int>(i)) >= 2 ? 1 : 0));
  }
  return depth;
}

Filter data_filter(const Program& program, bool most) {
  Filter filter;
  filter.operators = [&program, most](int node, std::vector<OperatorCuts>* domain) {
    keep_extreme(program.rules[static_cast<size_t>(node)], is_batch, most, domain);
  };
  return filter;
}

Filter zero_filter(const Program& program) {
  Filter filter = data_filter(program, true);
  filter.tensors = [&program](Entry e, std::vector<Tiling>* domain) {
    if (program.graph().node(e.node).role != Role::kParameter) return;
    const auto along_first = [](const Tiling& t) {
      return static_cast<int>(t.cuts_of(0).size());
    };
    int most = 0;
    for (const Tiling& t : *domain) most = std::max(most, along_first(t));
    domain->erase(std::remove_if(domain->begin(), domain->end(),
                                 [&](const Tiling& t) { return along_first(t) != most; }),
                  domain->end());
  };
  return filter;
}

Filter one_weird_trick_filter(const Program& program) {
  Filter filter;
  filter.operators = [&program](int node, std::vector<OperatorCuts>* domain) {
    const size_t rank = weight_rank(program.graph(), node);
    if (rank < 2) return;
    keep_extreme(program.rules[static_cast<size_t>(node)], is_batch, rank > 2, domain);
  };
  return filter;
}

Filter megatron_filter(const Program& program) {
  Filter filter;
  const std::vector<int> depths = weighted_depths(program.graph());
  filter.operators = [&program, depths](int node, std::vector<OperatorCuts>* domain) {
    if (weight_rank(program.graph(), node) < 2) return;
    const bool column = depths[static_cast<size_t>(node)] % 2 == 1;
    const auto wanted = [column](const Factor& f) { return column ? !f.reduced && !f.batch && !f.spatial : f.reduced; };
    keep_extreme(program.rules[static_cast<size_t>(node)], wanted, true, domain);
  };
  return filter;
}

}  // namespace

std::optional<Filter> baseline(const Program& program, const std::string& name) {
  if (name == "data") return data_filter(program, true);
  if (name == "model") return data_filter(program, false);
  if (name == "zero") return zero_filter(program);
  if (name == "owt") return one_weird_trick_filter(program);
  if (name == "megatron") return megatron_filter(program);
  return std::nullopt;
}

std::vector<int> by_size(const Program& program) {
  const Graph& graph = program.graph();
  std::vector<std::pair<int64_t, int>> sized;
  for (size_t i = 0; i < graph.nodes().size(); ++i) {
    const Node& node = graph.nodes()[i];
    if (node.is_variable()) continue;
    int64_t bytes = 0;
    for (const Entry& e : node.inputs) bytes = std::max(bytes, byte_count(graph.type(e)));
    for (const TensorType& type : node.outputs) bytes = std::max(bytes, byte_count(type));
    sized.emplace_back(-bytes, static_cast<int>(i));
  }
  std::sort(sized.begin(), sized.end());
  std::vector<int> order;
  for (const auto& item : sized) order.push_back(item.second);
  return order;
}

}  // namespace soybean
