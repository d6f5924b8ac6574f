#include "search/ties.h"

#include <numeric>

#include "graph/share_parameters.h"

namespace soybean {
Ties::Ties(const Graph& graph, const std::vector<Rule>& rules) : first_(rules.size() + 1, 0) {
  for (size_t i = 0; i < rules.size(); ++i) {
    const Rule& rule = rules[i];
    first_[i + 1] = first_[i] + rule.factors.size();
    if (!rule.known) continue;
    const auto operand = [&](Entry e, const std::vector<int>& dims) {
      for (size_t d = 0; d < dims.size(); ++d) {
        if (dims[d] != kWhole) places_.push_back({i, static_cast<size_t>(dims[d]), e, d});
      }
    };
    for (size_t k = 0; k < rule.inputs.size(); ++k) operand(graph.nodes()[i].inputs[k], rule.inputs[k].dims);
    for (size_t k = 0; k < rule.outputs.size(); ++k) {
      operand({static_cast<int>(i), static_cast<int>(k)}, rule.outputs[k].dims);
    }
  }
  group_.resize(first_.back());
  std::iota(group_.begin(), group_.end(), size_t{0});
  const auto root = [this](size_t x) {
    while (group_[x] != x) x = group_[x] = group_[group_[x]];
    return x;
  };
  std::map<std::pair<Entry, size_t>, size_t> seen;  // a tensor's dim -> a factor along it
  for_each_dim([&](size_t node, size_t factor, Entry e, size_t dim) {
    const size_t own = first_[node] + factor;
    const auto [it, fresh] = seen.emplace(std::make_pair(e, dim), own);
    if (!fresh) group_[root(own)] = root(it->second);
  });
  for (size_t& group : group_) group = root(group);
}

void mark_samples(const Graph& graph, std::vector<Rule>* rules) {
  const Ties ties(graph, *rules);
  std::vector<bool> of_parameter(ties.count(), false);
  ties.for_each_dim([&](size_t node, size_t factor, Entry e, size_t) {
    const Node& source = original(graph, e);
    if (source.is_variable() && source.role == Role::kParameter) of_parameter[ties.of(node, factor)] = true;
  });
  for (size_t i = 0; i < rules->size(); ++i) {
    std::vector<Factor>& factors = (*rules)[i].factors;
    for (size_t f = 0; f < factors.size(); ++f) {
      if (of_parameter[ties.of(i, f)]) factors[f].batch = false;
    }
  }
}

}  // namespace soybean
