#include "search/problem.h"

#include <algorithm>

namespace soybean {
namespace {

int64_t copies(const Mesh& mesh, const Tiling& tiling) {
  int64_t n = 1;
  for (size_t i = 0; i < tiling.size(); ++i) {
    if (tiling[i] == kReplicated) n *= mesh.parts(static_cast<int>(i));
  }
  return n;
}

Tiling without_partial(Tiling tiling) {
  std::replace(tiling.begin(), tiling.end(), kPartial, kReplicated);
  return tiling;
}

// Numbers equal tilings alike, so that each pair is converted once.
class Numbering {
 public:
  int number(const Tiling& tiling) {
    const auto [it, fresh] = numbers_.emplace(tiling, static_cast<int>(list_.size()));
    if (fresh) list_.push_back(tiling);
    return it->second;
  }
  const std::vector<Tiling>& list() const { return list_; }

 private:
  std::map<Tiling, int> numbers_;
  std::vector<Tiling> list_;
};

}  // namespace

ConversionGraph& Conversions::of(Entry e, const std::vector<Choice>& more) {
  const TensorType& type = space_.graph().type(e);
  std::vector<Choice> choices = space_.conversion_choices(e);
  choices.insert(choices.end(), more.begin(), more.end());
  std::sort(choices.begin(), choices.end());
  choices.erase(std::unique(choices.begin(), choices.end()), choices.end());
  auto& slot = graphs_[{{type.shape, type.itemsize}, choices}];
  if (slot == nullptr) {
    slot = std::make_unique<ConversionGraph>(space_.mesh(), type, choices);
  }
  return *slot;
}

Problem::Problem(const Space& space, const Filter& filter) : space_(space), conversions_(space) {
  add_operators(filter);
  add_results(filter);
  for (size_t i = 0; i < space_.graph().nodes().size(); ++i) {
    const size_t outputs = space_.graph().nodes()[i].outputs.size();
    for (size_t k = 0; k < outputs; ++k) {
      add_tensor({static_cast<int>(i), static_cast<int>(k)}, filter);
    }
  }
}

int Problem::add_variable(size_t domain) {
  domains_.push_back(static_cast<int>(domain));
  return static_cast<int>(domains_.size()) - 1;
}

void Problem::add_operators(const Filter& filter) {
  const size_t count = space_.graph().nodes().size();
  operator_variable_.assign(count, -1);
  operator_cuts_.resize(count);
  for (size_t i = 0; i < count; ++i) {
    if (space_.graph().nodes()[i].is_variable()) continue;
    operator_cuts_[i] = space_.operator_cuts(static_cast<int>(i));
    if (filter.operators) filter.operators(static_cast<int>(i), &operator_cuts_[i]);
    if (operator_cuts_[i].empty()) {
      throw Error("operator '" + space_.graph().nodes()[i].name + "' cannot be placed on " +
                  std::to_string(space_.mesh().devices()) + " devices");
    }
    operator_variable_[i] = add_variable(operator_cuts_[i].size());
  }
}

void Problem::add_results(const Filter& filter) {
  for (size_t r = 0; r < space_.results().size(); ++r) {
    result_tilings_.push_back(space_.result_tilings(r));
    if (filter.results) filter.results(r, &result_tilings_.back());
    result_variable_.push_back(add_variable(result_tilings_.back().size()));
  }
}

std::vector<Tiling> Problem::made(Entry e) const {
  const Rule& rule = space_.program().rules[static_cast<size_t>(e.node)];
  std::vector<Tiling> tilings;
  for (const OperatorCuts& cuts : operator_cuts_[static_cast<size_t>(e.node)]) {
    tilings.push_back(rule.known ? output_tiling(rule, static_cast<size_t>(e.index), cuts) : cuts);
  }
  return tilings;
}

std::vector<Problem::Need> Problem::needs(Entry e) const {
  std::map<int, Need> by_variable;
  for (const Use& use : space_.uses(e)) {
    const size_t node = static_cast<size_t>(use.node);
    const int variable = use.node < 0 ? result_variable_[use.input] : operator_variable_[node];
    Need& need = by_variable[variable];
    need.variable = variable;
    if (use.node < 0) {
      for (const Tiling& t : result_tilings_[use.input]) need.tilings.push_back({t});
      continue;
    }
    const Rule& rule = space_.program().rules[node];
    const auto& cuts = operator_cuts_[node];
    need.tilings.resize(cuts.size());
    for (size_t i = 0; i < cuts.size(); ++i) {
      const Tiling t = rule.known ? input_tiling(rule, use.input, cuts[i]) : cuts[i];
      // Inputs that need the same tiling share one conversion.
      if (std::count(need.tilings[i].begin(), need.tilings[i].end(), t) == 0) {
        need.tilings[i].push_back(t);
      }
    }
  }
  std::vector<Need> out;
  for (auto& item : by_variable) out.push_back(std::move(item.second));
  return out;
}

void Problem::add_table(Entry e, int from, const std::vector<Tiling>& tilings, const Need& need) {
  ConversionGraph& conversion = conversions_.of(e);
  const int64_t ways = space_.program().requires_grad(e) ? 2 : 1;
  const bool fixed = space_.is_fixed(e);
  Numbering sources, targets;
  std::vector<int> row;
  std::vector<std::vector<int>> column(need.tilings.size());
  for (const Tiling& t : tilings) row.push_back(sources.number(t));
  for (size_t i = 0; i < need.tilings.size(); ++i) {
    for (const Tiling& t : need.tilings[i]) column[i].push_back(targets.number(t));
  }
  const size_t width = targets.list().size();
  std::vector<Cost> cost(sources.list().size() * width);
  for (size_t a = 0; a < sources.list().size(); ++a) {
    for (size_t b = 0; b < width; ++b) {
      const bool same = sources.list()[a] == targets.list()[b];
      cost[a * width + b] = fixed ? (same ? Cost{} : kImpossible)
                                  : conversion.cost(sources.list()[a], targets.list()[b]) * ways;
    }
  }
  const bool ascending = from < need.variable;
  const size_t rows = tilings.size(), columns = need.tilings.size();
  CostTable table;
  table.variables = ascending ? std::vector<int>{from, need.variable}
                              : std::vector<int>{need.variable, from};
  table.costs.resize(rows * columns);
  for (size_t i = 0; i < rows; ++i) {
    for (size_t j = 0; j < columns; ++j) {
      Cost sum{};
      for (const int b : column[j]) {
        sum = sum + cost[static_cast<size_t>(row[i]) * width + static_cast<size_t>(b)];
      }
      if (kImpossible < sum) sum = kImpossible;
      table.costs[ascending ? i * columns + j : j * rows + i] = sum;
    }
  }
  tables_.push_back(std::move(table));
}

Cost Problem::source_cost(Entry e, const Tiling& tiling, const std::vector<Tiling>& needed) {
  const int64_t ways = space_.program().requires_grad(e) ? 2 : 1;
  // Feeding several copies moves nothing between devices, but is not free.
  Cost cost{0, copies(space_.mesh(), tiling)};
  for (const Tiling& t : needed) {
    const bool fixed = space_.is_fixed(e) && tiling != t;
    cost = cost + (fixed ? kImpossible : conversions_.of(e).cost(tiling, t) * ways);
  }
  return cost;
}

Tiling Problem::best_source(Entry e, const std::vector<Tiling>& domain,
                            const std::vector<Tiling>& needed) {
  return *std::min_element(domain.begin(), domain.end(), [&](const Tiling& a, const Tiling& b) {
    return source_cost(e, a, needed) < source_cost(e, b, needed);
  });
}

void Problem::add_source_cost(Entry e, const std::vector<Tiling>& domain, const Need& need) {
  CostTable table{{need.variable}, {}};
  for (const std::vector<Tiling>& needed : need.tilings) {
    Cost cost = source_cost(e, best_source(e, domain, needed), needed);
    if (kImpossible < cost) cost = kImpossible;
    table.costs.push_back(cost);
  }
  tables_.push_back(std::move(table));
}

void Problem::add_tensor(Entry e, const Filter& filter) {
  const bool variable = space_.graph().node(e.node).is_variable();
  const std::vector<Need> all = needs(e);
  if (variable || all.size() > 1) {
    std::vector<Tiling>& domain = tensor_tilings_[e];
    domain = space_.tensor_tilings(e);
    if (filter.tensors) filter.tensors(e, &domain);
  }
  if (all.empty()) return;
  if (all.size() == 1) {
    if (variable) {
      add_source_cost(e, tensor_tilings_.at(e), all[0]);
    } else {
      add_table(e, operator_variable_[static_cast<size_t>(e.node)], made(e), all[0]);
    }
    return;
  }
  const std::vector<Tiling>& domain = tensor_tilings_.at(e);
  const int rest = tensor_variable_[e] = add_variable(domain.size());
  if (variable) {
    CostTable table{{rest}, {}};
    for (const Tiling& t : domain) table.costs.push_back(source_cost(e, t, {}));
    tables_.push_back(std::move(table));
  } else {
    Need self{rest, {}};
    for (const Tiling& t : domain) self.tilings.push_back({t});
    add_table(e, operator_variable_[static_cast<size_t>(e.node)], made(e), self);
  }
  for (const Need& need : all) add_table(e, rest, domain, need);
}

std::optional<Plan> Problem::solve(size_t table_limit) {
  const std::optional<Assignment> best = minimise(domains_, tables_, table_limit);
  if (!best) return std::nullopt;
  return plan_of(best->values);
}

Plan Problem::plan_of(const std::vector<int>& values) {
  const auto value = [&](int variable) {
    return static_cast<size_t>(values[static_cast<size_t>(variable)]);
  };
  Plan plan;
  plan.devices = space_.mesh().devices();
  plan.operators.resize(operator_cuts_.size());
  for (size_t i = 0; i < operator_cuts_.size(); ++i) {
    if (operator_variable_[i] >= 0) {
      plan.operators[i] = operator_cuts_[i][value(operator_variable_[i])];
    }
  }
  for (size_t r = 0; r < result_variable_.size(); ++r) {
    plan.results.push_back(result_tilings_[r][value(result_variable_[r])]);
  }
  for (size_t i = 0; i < space_.graph().nodes().size(); ++i) {
    const Node& node = space_.graph().nodes()[i];
    for (size_t k = 0; k < node.outputs.size(); ++k) {
      const Entry e{static_cast<int>(i), static_cast<int>(k)};
      Tiling& tiling = plan.tensors[e];
      const std::vector<Need> all = needs(e);
      const auto shared = tensor_variable_.find(e);
      if (shared != tensor_variable_.end()) {
        tiling = tensor_tilings_.at(e)[value(shared->second)];
      } else if (node.is_variable()) {
        const std::vector<Tiling> needed =
            all.empty() ? std::vector<Tiling>{} : all[0].tilings[value(all[0].variable)];
        tiling = best_source(e, tensor_tilings_.at(e), needed);
      } else if (all.empty()) {
        tiling = without_partial(made(e)[value(operator_variable_[i])]);
      } else {
        tiling = all[0].tilings[value(all[0].variable)][0];
      }
    }
  }
  // The moving statistics rest as the batch statistics are left.
  const size_t outputs = space_.graph().outputs().size();
  for (size_t s = 0; s < space_.program().expanded.statistics.size(); ++s) {
    const int variable = space_.program().expanded.statistics[s].variable;
    plan.tensors[{variable, 0}] = plan.results[outputs + s];
  }
  return plan;
}

}  // namespace soybean
