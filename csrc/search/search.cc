#include "search/search.h"

#include <algorithm>
#include <cstdlib>
#include <random>

#include "search/problem.h"

namespace soybean {
namespace {

// Entries of the largest table that the exact search may build (16 bytes each).
constexpr size_t kTableLimit = size_t{1} << 25;

SpaceOptions space_options(const SearchOptions& options) {
  SpaceOptions out;
  out.whole_boundary = options.whole_boundary;
  out.pins = options.pins;
  return out;
}

bool has_prefix(const std::vector<int>& sequence, const std::vector<int>& prefix) {
  return std::equal(prefix.begin(), prefix.end(), sequence.begin());
}

void keep_prefix(const std::vector<int>& prefix, std::vector<std::vector<int>>* domain) {
  domain->erase(std::remove_if(domain->begin(), domain->end(),
                               [&](const std::vector<int>& s) { return !has_prefix(s, prefix); }),
                domain->end());
}

// SoyBean's k-cut: one cut after the other, each the best given those before.
Plan search_recursively(const Program& program, const Mesh& mesh, const SearchOptions& options,
                        const Problem::Filter& base) {
  Plan plan;
  int64_t devices = 1;
  for (int cut = -1; cut < mesh.cut_count(); ++cut) {
    if (cut >= 0) devices *= mesh.parts(cut);
    SpaceOptions narrowed = space_options(options);
    for (auto& pin : narrowed.pins) pin.second.resize(static_cast<size_t>(cut + 1));
    const Mesh part(devices);
    const Space space(program, part, narrowed);
    Problem::Filter filter = base;
    if (cut >= 0) {
      const Plan& before = plan;
      filter.operators = [&](int node, std::vector<OperatorCuts>* domain) {
        keep_prefix(before.operators[static_cast<size_t>(node)], domain);
        if (base.operators) base.operators(node, domain);
      };
      filter.tensors = [&](Entry e, std::vector<Tiling>* domain) {
        keep_prefix(before.tensors.at(e), domain);
      };
      filter.results = [&](size_t r, std::vector<Tiling>* domain) {
        keep_prefix(before.results[r], domain);
      };
    }
    std::optional<Plan> next = Problem(space, filter).solve(kTableLimit);
    if (!next) {
      throw Error("no plan found for " + std::to_string(mesh.devices()) +
                  " devices: use fewer devices or pin the tilings of some parameters");
    }
    plan = *next;
  }
  return plan;
}

// Keeps the ways to cut an operator with the most (or fewest) parts of the batch.
Problem::Filter batch_filter(const Program& program, bool most) {
  Problem::Filter filter;
  filter.operators = [&program, most](int node, std::vector<OperatorCuts>* domain) {
    const Rule& rule = program.rules[static_cast<size_t>(node)];
    if (!rule.known || domain->empty()) return;
    const auto parts = [&](const OperatorCuts& cuts) {
      int64_t n = 0;
      for (const int c : cuts) n += c >= 0 && rule.factors[static_cast<size_t>(c)].batch ? 1 : 0;
      return n;
    };
    int64_t best = parts(domain->front());
    for (const OperatorCuts& cuts : *domain) {
      best = most ? std::max(best, parts(cuts)) : std::min(best, parts(cuts));
    }
    domain->erase(std::remove_if(domain->begin(), domain->end(),
                                 [&](const OperatorCuts& c) { return parts(c) != best; }),
                  domain->end());
  };
  return filter;
}

class RandomPlan {
 public:
  RandomPlan(const Space& space, bool whole, uint64_t seed)
      : space_(space), whole_(whole), random_(seed) {}

  Plan draw() {
    Plan plan;
    plan.devices = space_.mesh().devices();
    for (size_t i = 0; i < space_.graph().nodes().size(); ++i) {
      const Node& node = space_.graph().nodes()[i];
      const int n = static_cast<int>(i);
      plan.operators.push_back(node.is_variable() ? OperatorCuts{} : pick(operator_cuts(n)));
      for (size_t k = 0; k < node.outputs.size(); ++k) {
        const Entry e{n, static_cast<int>(k)};
        plan.tensors[e] = pick(space_.tensor_tilings(e));
      }
    }
    for (size_t r = 0; r < space_.results().size(); ++r) {
      plan.results.push_back(pick(space_.result_tilings(r)));
    }
    place_fixed(&plan);
    return plan;
  }

 private:
  template <typename T>
  T pick(const std::vector<T>& from) {
    return from[std::uniform_int_distribution<size_t>(0, from.size() - 1)(random_)];
  }

  // An operator that changes its variables in place is where they are: with
  // variables whole on the first device, it is there too.
  std::vector<OperatorCuts> operator_cuts(int node) const {
    for (const Entry& e : space_.graph().node(node).inputs) {
      if (whole_ && space_.is_fixed(e)) {
        return {OperatorCuts(static_cast<size_t>(space_.mesh().cut_count()), kOwner)};
      }
    }
    return space_.operator_cuts(node);
  }

  // Variables that are changed in place rest where their operator is.
  void place_fixed(Plan* plan) {
    const Program& program = space_.program();
    const size_t outputs = space_.graph().outputs().size();
    for (size_t s = 0; s < program.expanded.statistics.size(); ++s) {
      plan->tensors[{program.expanded.statistics[s].variable, 0}] = plan->results[outputs + s];
    }
    for (auto& [e, tiling] : plan->tensors) {
      if (!space_.is_fixed(e)) continue;
      const Use use = space_.uses(e).front();
      const size_t node = static_cast<size_t>(use.node);
      const Rule& rule = program.rules[node];
      tiling = rule.known ? input_tiling(rule, use.input, plan->operators[node])
                          : plan->operators[node];
    }
  }

  const Space& space_;
  const bool whole_;  // the boundary
  std::mt19937_64 random_;
};

}  // namespace

Plan search(const Program& program, const SearchOptions& options) {
  const Mesh mesh(options.devices);
  const std::string& strategy = options.strategy;
  Problem::Filter filter;
  Plan plan;
  if (strategy.compare(0, 7, "random:") == 0) {
    SpaceOptions free = space_options(options);
    free.free_operators = true;
    const Space space(program, mesh, free);
    const uint64_t seed = std::strtoull(strategy.c_str() + 7, nullptr, 10);
    plan = RandomPlan(space, options.whole_boundary, seed).draw();
    plan.exact = false;
  } else if (strategy == "recursive") {
    plan = search_recursively(program, mesh, options, filter);
    plan.exact = false;
  } else if (strategy == "optimal" || strategy == "data" || strategy == "model") {
    if (strategy != "optimal") filter = batch_filter(program, strategy == "data");
    const Space space(program, mesh, space_options(options));
    std::optional<Plan> best = Problem(space, filter).solve(kTableLimit);
    plan = best ? *best : search_recursively(program, mesh, options, filter);
    plan.exact = best.has_value();
  } else {
    throw Error("strategy is '" + strategy +
                "': optimal, data, model, recursive or random:SEED are possible");
  }
  plan.strategy = strategy;
  plan.whole_boundary = options.whole_boundary;
  check_plan(program, mesh, plan);
  return plan;
}

}  // namespace soybean
