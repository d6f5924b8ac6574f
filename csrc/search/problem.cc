#include "search/problem.h"

#include <algorithm>

#include "search/arrangement.h"

namespace soybean {
namespace {

// A variable that the owner may hold is tried in so many arrangements of each tiling,
// on so many cuts.
constexpr size_t kArrangements = 48;
constexpr int kArrangedCuts = 4;

size_t index(int i) { return static_cast<size_t>(i); }

bool is_owned(const Tiling& tiling) {
  return std::all_of(tiling.begin(), tiling.end(), [](Choice c) { return c == kOwner; });
}

Cost capped(Cost cost) { return kImpossible < cost ? kImpossible : cost; }

Tiling without_partial(const Tiling& tiling) {
  std::vector<int> choices = tiling.choices();
  std::replace(choices.begin(), choices.end(), kPartial, kReplicated);
  return tiling.with_choices(choices);
}

// The tilings in which a variable needs no more than the gathering of copies to be
// used in this one: its replicated cuts spread over a dim, innermost. Of these the outermost
// divides last, so that the smallest pieces cross its links, which are the slowest.
std::vector<Tiling> spread(const Mesh& mesh, const Shape& shape, const Tiling& need) {
  std::vector<Tiling> out{need};
  for (size_t first = 0; first < shape.size(); ++first) {
    Tiling tiling = need;
    for (size_t i = need.size(); i-- > 0;) {
      if (need[i] >= 0) continue;
      // Onto the first dim that has room, from `first` on.
      for (size_t d = 0; d < shape.size(); ++d) {
        const Tiling next = tiling.with(static_cast<int>(i), static_cast<Choice>((first + d) % shape.size()));
        if (!fits(mesh, next, shape)) continue;
        tiling = next;
        break;
      }
    }
    out.push_back(tiling);
    // The owner's cuts may stay the owner's.
    std::vector<int> choices = tiling.choices();
    for (size_t i = 0; i < need.size(); ++i) choices[i] = need[i] == kOwner ? kOwner : choices[i];
    out.push_back(tiling.with_choices(choices));
  }
  return out;
}

// Whether an operator takes the tensor twice and may need it in two tilings (a product
// of a matrix with itself): where it rests is then not where a single input needs it.
bool needed_differently(const Space& space, Entry e) {
  const std::vector<Use>& uses = space.uses(e);
  for (const Use& a : uses) {
    if (a.node < 0) continue;
    const Rule& rule = space.program().rules[index(a.node)];
    for (const Use& b : uses) {
      if (!rule.known || b.node != a.node) continue;
      const TensorRule &one = rule.inputs[a.input], &other = rule.inputs[b.input];
      if (one.dims != other.dims || one.addend != other.addend) return true;
    }
  }
  return false;
}

}  // namespace

bool rests(const Space& space, Entry e) {
  if (space.is_pinned(e)) return true;
  if (space.is_fixed(e)) return false;
  const std::vector<Use>& uses = space.uses(e);
  if (space.graph().node(e.node).is_variable() && uses.empty()) return true;
  // Inputs of one operator that are needed alike count as one use.
  return needed_differently(space, e) || std::any_of(uses.begin(), uses.end(), [&uses](const Use& use) {
    return use.node != uses[0].node || (use.node < 0 && use.input != uses[0].input);
  });
}

Domains domains_of(const Space& space, const Filter& filter) {
  Domains domains;
  const auto& nodes = space.graph().nodes();
  domains.operators.resize(nodes.size());
  for (size_t i = 0; i < nodes.size(); ++i) {
    const int node = static_cast<int>(i);
    if (!nodes[i].is_variable()) {
      domains.operators[i] = space.operator_cuts(node);
      if (filter.operators && !space.is_pinned(node)) filter.operators(node, &domains.operators[i]);
      if (domains.operators[i].empty()) {
        throw Error("operator '" + nodes[i].name + "' cannot be placed on " +
                    std::to_string(space.mesh().devices()) + " devices");
      }
    }
    for (size_t k = 0; k < nodes[i].outputs.size(); ++k) {
      const Entry e{node, static_cast<int>(k)};
      if (!rests(space, e)) continue;
      domains.tensors[e] = space.tensor_tilings(e);
      if (filter.tensors && !space.is_pinned(e)) filter.tensors(e, &domains.tensors[e]);
    }
  }
  for (size_t r = 0; r < space.results().size(); ++r) {
    domains.results.push_back(space.result_tilings(r));
    if (filter.results) filter.results(r, &domains.results.back());
  }
  return domains;
}

Problem::Problem(const Space& space, const Domains& domains, const Pricing& pricing)
    : space_(space), domains_(domains), prices_(space, pricing) {
  add_operators();
  add_results();
  for (size_t i = 0; i < space_.graph().nodes().size(); ++i) {
    const size_t outputs = space_.graph().nodes()[i].outputs.size();
    for (size_t k = 0; k < outputs; ++k) add_tensor({static_cast<int>(i), static_cast<int>(k)});
  }
  pack();
}

int Problem::add_variable(size_t domain) {
  sizes_.push_back(static_cast<int>(domain));
  return static_cast<int>(sizes_.size()) - 1;
}

void Problem::add_unary(int variable, std::vector<Cost> costs) {
  const auto free = [](const Cost& c) { return c == Cost{}; };
  if (std::all_of(costs.begin(), costs.end(), free)) return;
  priced_.push_back({{variable}, std::make_shared<const std::vector<Cost>>(std::move(costs))});
}

void Problem::add_operators() {
  const size_t count = space_.graph().nodes().size();
  operator_variable_.assign(count, -1);
  for (size_t i = 0; i < count; ++i) {
    if (space_.graph().nodes()[i].is_variable()) continue;
    operator_variable_[i] = add_variable(domains_.operators[i].size());
    std::vector<Cost> costs;
    for (const OperatorCuts& cuts : domains_.operators[i]) {
      costs.push_back(prices_.computation(static_cast<int>(i), cuts));
    }
    add_unary(operator_variable_[i], std::move(costs));
  }
}

void Problem::add_results() {
  for (const std::vector<Tiling>& domain : domains_.results) {
    result_variable_.push_back(add_variable(domain.size()));
  }
}

std::vector<int> Problem::made(Entry e) {
  const Rule& rule = space_.program().rules[index(e.node)];
  std::vector<int> tilings;
  for (const OperatorCuts& cuts : domains_.operators[index(e.node)]) {
    tilings.push_back(prices_.number(output_tiling(rule, index(e.index), cuts)));
  }
  return tilings;
}

std::vector<Problem::Need> Problem::needs(Entry e) {
  std::vector<Need> out;
  const auto need_of = [&out](int variable) -> Need& {
    for (Need& need : out) {
      if (need.variable == variable) return need;
    }
    out.push_back({variable, {}});
    return out.back();
  };
  for (const Use& use : space_.uses(e)) {
    if (use.node < 0) {
      Need& need = need_of(result_variable_[use.input]);
      for (const Tiling& t : domains_.results[use.input]) need.tilings.push_back({prices_.number(t)});
      continue;
    }
    const Rule& rule = space_.program().rules[index(use.node)];
    const std::vector<OperatorCuts>& cuts = domains_.operators[index(use.node)];
    Need& need = need_of(operator_variable_[index(use.node)]);
    need.tilings.resize(cuts.size());
    for (size_t i = 0; i < cuts.size(); ++i) {
      const int t = prices_.number(input_tiling(rule, use.input, cuts[i]));
      // Inputs that need the same tiling share one conversion.
      std::vector<int>& all = need.tilings[i];
      if (std::count(all.begin(), all.end(), t) == 0) all.push_back(t);
    }
  }
  return out;
}

// Variables that are changed in place are never converted. Where prices are those of
// counts, tilings with the same counts are one.
Cost Problem::conversion(Entry e, int from, int to) {
  if (space_.is_fixed(e)) {
    const size_t rank = space_.graph().type(e).shape.size();
    const bool same = prices_.pricing().exact ? from == to : prices_.counts(from, rank) == prices_.counts(to, rank);
    return same ? Cost{} : kImpossible;
  }
  return prices_.conversion(e, from, to);
}

void Problem::add_conversions(Entry e, int from, const std::vector<int>& tilings, const Need& need) {
  const bool fixed = space_.is_fixed(e);
  std::vector<int> key{prices_.kind(e), fixed, static_cast<int>(tilings.size())};
  key.insert(key.end(), tilings.begin(), tilings.end());
  for (const std::vector<int>& needed : need.tilings) {
    key.push_back(-1);
    key.insert(key.end(), needed.begin(), needed.end());
  }
  std::shared_ptr<const std::vector<Cost>>& costs = shared_[std::move(key)];
  if (costs == nullptr) {
    std::vector<Cost> table;
    table.reserve(tilings.size() * need.tilings.size());
    for (const int t : tilings) {
      for (const std::vector<int>& needed : need.tilings) {
        Cost sum{};
        for (const int n : needed) {
          sum = sum + conversion(e, t, n);
        }
        table.push_back(capped(sum));
      }
    }
    costs = std::make_shared<const std::vector<Cost>>(std::move(table));
  }
  priced_.push_back({{from, need.variable}, costs});
}

Problem::Source Problem::best_of(Entry e, const std::vector<Tiling>& candidates,
                                 const std::vector<int>& needed) {
  Source best{kImpossible, candidates.front()};
  for (const Tiling& tiling : candidates) {
    Cost cost = prices_.holding(e, tiling);
    const int from = prices_.number(tiling);
    for (const int to : needed) cost = cost + prices_.conversion(e, from, to);
    if (cost < best.cost) best = {cost, tiling};
  }
  return best;
}

// The tilings in which a variable may be held, by a number that is the same for
// variables alike.
int Problem::holder(Entry e) {
  const auto [known, fresh] = holder_of_.emplace(e, -1);
  if (!fresh) return known->second;
  std::vector<Tiling> possible = space_.tensor_tilings(e);
  std::vector<int> key{prices_.kind(e), static_cast<int>(space_.graph().node(e.node).role)};
  for (const Tiling& t : possible) key.push_back(prices_.number(t));
  const auto [it, added] = holders_.emplace(key, Holder{});
  if (added) {
    Holder& h = it->second;
    h.number = static_cast<int>(holders_.size()) - 1;
    for (const Tiling& t : possible) {
      h.counts.insert(Counts(space_.mesh(), t, space_.graph().type(e).shape.size()));
      h.owned = h.owned || t.has(kOwner);
    }
    h.tilings = std::move(possible);
    holders_by_number_.push_back(&h);
  }
  return known->second = it->second.number;
}

Problem::Source Problem::best_source(Entry e, const std::vector<int>& needed) {
  const int number = holder(e);
  const auto [it, fresh] = sources_.emplace(std::make_pair(number, needed), Source{});
  if (!fresh) return it->second;
  const Holder& h = *holders_by_number_[index(number)];
  const Shape& shape = space_.graph().type(e).shape;
  const Mesh& mesh = space_.mesh();
  std::vector<Tiling> near = spread(mesh, shape, prices_.tiling(needed[0]));
  near.push_back(Tiling(std::vector<int>(near[0].size(), kReplicated)));
  std::vector<Tiling> candidates;
  for (const Tiling& t : near) {
    if (h.counts.count(Counts(mesh, t, shape.size())) > 0) candidates.push_back(t);
  }
  // Where the owner comes in, the parts that it has decide, and they may be any.
  const bool any = h.owned || prices_.tiling(needed[0]).has(kOwner);
  if (any || candidates.empty()) {
    const bool arranged = prices_.pricing().exact && mesh.cut_count() <= kArrangedCuts;
    for (const Tiling& t : h.tilings) {
      const std::vector<Tiling> all = arranged ? arrangements(mesh, t, kArrangements) : std::vector<Tiling>{t};
      candidates.insert(candidates.end(), all.begin(), all.end());
    }
  }
  return it->second = best_of(e, candidates, needed);
}

// A variable that is changed in place, by the first of these.
void Problem::add_fixed(Entry e, const std::vector<Need>& all) {
  const int owner = operator_variable_[index(space_.fixed_by(e)->node)];
  const auto changes = std::find_if(all.begin(), all.end(), [owner](const Need& need) { return need.variable == owner; });
  std::vector<int> at;
  std::vector<Cost> costs;
  for (const std::vector<int>& needed : changes->tilings) {
    at.push_back(needed[0]);
    const bool possible = needed.size() == 1 && (!space_.is_whole_boundary() || is_owned(prices_.tiling(at.back())));
    costs.push_back(possible ? prices_.holding(e, prices_.tiling(at.back())) : kImpossible);
  }
  add_unary(owner, std::move(costs));
  for (const Need& need : all) {
    if (need.variable != owner) add_conversions(e, owner, at, need);
  }
}

void Problem::add_tensor(Entry e) {
  const bool variable = space_.graph().node(e.node).is_variable();
  const std::vector<Need> all = needs(e);
  if (all.empty()) return;
  if (space_.is_fixed(e) && !space_.is_pinned(e)) {
    add_fixed(e, all);
    return;
  }
  const auto domain = domains_.tensors.find(e);
  if (domain == domains_.tensors.end()) {  // one use
    if (!variable) {
      add_conversions(e, operator_variable_[index(e.node)], made(e), all[0]);
      return;
    }
    std::vector<Cost> costs;
    for (const std::vector<int>& needed : all[0].tilings) costs.push_back(best_source(e, needed).cost);
    add_unary(all[0].variable, std::move(costs));
    return;
  }
  const int rest = tensor_variable_[e] = add_variable(domain->second.size());
  std::vector<int> tilings;
  std::vector<Cost> holding;
  for (const Tiling& t : domain->second) {
    tilings.push_back(prices_.number(t));
    holding.push_back(prices_.holding(e, t));
  }
  if (variable) {
    add_unary(rest, std::move(holding));
  } else {
    Need self{rest, {}};
    for (const int t : tilings) self.tilings.push_back({t});
    add_conversions(e, operator_variable_[index(e.node)], made(e), self);
  }
  for (const Need& need : all) add_conversions(e, rest, tilings, need);
}

// One number for each price: the objective in the high bits, messages in the low
// ones, as many as are to spare, to tell equal plans apart.
void Problem::pack() {
  std::map<const std::vector<Cost>*, std::shared_ptr<const std::vector<int64_t>>> packed;
  double most = 1, most_messages = 1;
  for (const PricedTable& t : priced_) {
    int64_t bytes = 0, messages = 0;
    for (const Cost& c : *t.costs) {
      if (is_impossible(c)) continue;
      bytes = std::max(bytes, c.bytes);
      messages = std::max(messages, c.messages);
    }
    most += static_cast<double>(bytes);
    most_messages += static_cast<double>(messages);
  }
  tie_bits_ = 0;
  while (tie_bits_ < 30 && most * 2 < static_cast<double>(kForbidden >> (tie_bits_ + 1))) ++tie_bits_;
  int shift = 0;
  while (most_messages >= static_cast<double>(int64_t{1} << tie_bits_) * static_cast<double>(int64_t{1} << shift)) ++shift;
  for (PricedTable& t : priced_) {
    std::shared_ptr<const std::vector<int64_t>>& costs = packed[t.costs.get()];
    if (costs == nullptr) {
      std::vector<int64_t> table;
      table.reserve(t.costs->size());
      for (const Cost& c : *t.costs) {
        table.push_back(is_impossible(c) ? kForbidden : (c.bytes << tie_bits_) + (c.messages >> shift));
      }
      costs = std::make_shared<const std::vector<int64_t>>(std::move(table));
    }
    tables_.push_back({t.variables, costs});
  }
  priced_.clear();
  shared_.clear();
}

Solution Problem::solve(size_t limit) const { return minimise(sizes_, tables_, limit); }

Solution Problem::solve(size_t limit, const std::function<bool(const OperatorCuts&)>& allowed) const {
  std::vector<CostTable> tables = tables_;
  // Equal operators share their table, so that repeated layers are still alike.
  std::map<std::vector<int64_t>, std::shared_ptr<const std::vector<int64_t>>> shared;
  for (size_t i = 0; i < domains_.operators.size(); ++i) {
    std::vector<int64_t> costs;
    for (const OperatorCuts& cuts : domains_.operators[i]) costs.push_back(allowed(cuts) ? 0 : kForbidden);
    if (std::count(costs.begin(), costs.end(), 0) == 0 || std::count(costs.begin(), costs.end(), kForbidden) == 0) continue;
    auto& table = shared[costs];
    if (table == nullptr) table = std::make_shared<const std::vector<int64_t>>(costs);
    tables.push_back({{operator_variable_[i]}, table});
  }
  return minimise(sizes_, tables, limit);
}

bool Problem::prune(int64_t cost, size_t limit, Domains* domains) const {
  const std::vector<std::vector<int64_t>> marginals = min_marginals(sizes_, tables_, limit);
  if (marginals.empty() && !sizes_.empty()) return false;
  const auto keep = [&](int variable, std::vector<Division>* domain) {
    std::vector<Division> kept;
    for (size_t i = 0; i < domain->size(); ++i) {
      const int64_t marginal = marginals[index(variable)][i];
      if (marginal < kForbidden && value_of(marginal) <= cost) kept.push_back((*domain)[i]);
    }
    domain->swap(kept);
  };
  for (size_t i = 0; i < domains->operators.size(); ++i) {
    if (operator_variable_[i] >= 0) keep(operator_variable_[i], &domains->operators[i]);
  }
  for (const auto& [e, variable] : tensor_variable_) keep(variable, &domains->tensors.at(e));
  for (size_t r = 0; r < result_variable_.size(); ++r) keep(result_variable_[r], &domains->results[r]);
  return true;
}

Solution Problem::greedy(const std::vector<int>& nodes, size_t limit) const {
  std::vector<int> decided(sizes_.size(), -1);
  std::vector<std::vector<size_t>> by_variable(sizes_.size());
  for (size_t t = 0; t < tables_.size(); ++t) {
    for (const int v : tables_[t].variables) by_variable[index(v)].push_back(t);
  }
  // What a table costs at least when some of its variables are decided.
  const auto least = [&](const CostTable& table) {
    int64_t best = kForbidden;
    for (size_t i = 0; i < table.costs->size(); ++i) {
      size_t rest = i;
      bool fits = true;
      for (size_t k = table.variables.size(); k-- > 0;) {
        const size_t size = index(sizes_[index(table.variables[k])]);
        const int chosen = decided[index(table.variables[k])];
        fits = fits && (chosen < 0 || index(chosen) == rest % size);
        rest /= size;
      }
      if (fits) best = std::min(best, (*table.costs)[i]);
    }
    return best;
  };
  const auto decide = [&](int v) {
    int64_t best = -1;
    int choice = 0;
    for (int value = 0; value < sizes_[index(v)]; ++value) {
      decided[index(v)] = value;
      int64_t cost = 0;
      for (const size_t t : by_variable[index(v)]) cost = std::min(kForbidden, cost + least(tables_[t]));
      if (best >= 0 && cost >= best) continue;
      best = cost;
      choice = value;
    }
    decided[index(v)] = choice;
  };
  for (const int node : nodes) {
    decide(operator_variable_[index(node)]);
    for (size_t k = 0; k < space_.graph().node(node).outputs.size(); ++k) {
      const auto rest = tensor_variable_.find({node, static_cast<int>(k)});
      if (rest != tensor_variable_.end()) decide(rest->second);
    }
  }
  std::vector<CostTable> tables = tables_;
  for (size_t v = 0; v < sizes_.size(); ++v) {
    if (decided[v] < 0) continue;
    std::vector<int64_t> costs(index(sizes_[v]), kForbidden);
    costs[index(decided[v])] = 0;
    tables.push_back({{static_cast<int>(v)}, std::make_shared<const std::vector<int64_t>>(std::move(costs))});
  }
  return minimise(sizes_, tables, limit);
}

// The tilings in which a plan's operators and results need a tensor, numbered.
std::vector<int> Problem::needed_by(const Plan& plan, Entry e) {
  std::vector<int> needed;
  for (const Use& use : space_.uses(e)) {
    const int t = prices_.number(use.node < 0 ? plan.results[use.input]
                                              : input_tiling(space_.program().rules[index(use.node)], use.input,
                                                             plan.operators[index(use.node)]));
    if (std::count(needed.begin(), needed.end(), t) == 0) needed.push_back(t);
  }
  return needed;
}

Plan Problem::plan_of(const Solution& solution) {
  const auto value = [&](int variable) { return index(solution.values[index(variable)]); };
  Plan plan;
  plan.mesh = space_.mesh();
  plan.operators.resize(domains_.operators.size());
  for (size_t i = 0; i < domains_.operators.size(); ++i) {
    if (operator_variable_[i] >= 0) plan.operators[i] = domains_.operators[i][value(operator_variable_[i])];
  }
  for (size_t r = 0; r < result_variable_.size(); ++r) {
    plan.results.push_back(domains_.results[r][value(result_variable_[r])]);
  }
  for (size_t i = 0; i < space_.graph().nodes().size(); ++i) {
    const Node& node = space_.graph().nodes()[i];
    for (size_t k = 0; k < node.outputs.size(); ++k) {
      const Entry e{static_cast<int>(i), static_cast<int>(k)};
      Tiling& tiling = plan.tensors[e];
      const auto shared = tensor_variable_.find(e);
      if (shared != tensor_variable_.end()) {
        tiling = domains_.tensors.at(e)[value(shared->second)];
        continue;
      }
      const std::vector<int> needed = needed_by(plan, e);
      if (space_.is_fixed(e)) {
        tiling = space_.fixed_tiling(e, plan.operators);
      } else if (node.is_variable()) {
        tiling = needed.empty() ? best_of(e, domains_.tensors.at(e), {}).tiling : best_source(e, needed).tiling;
      } else if (needed.empty()) {
        tiling = without_partial(output_tiling(space_.program().rules[i], k, plan.operators[i]));
      } else {
        tiling = prices_.tiling(needed[0]);
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
