#include "search/search.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <iterator>
#include <set>

#include "search/arrangement.h"
#include "search/baselines.h"

namespace soybean {
namespace {

// Entries of the largest table that the search may build (8 bytes each).
constexpr size_t kTableLimit = size_t{1} << 23;
// Arrangements of one choice that the second step tries.
constexpr size_t kArrangements = 24;
// The same in the second step, which finds plans and needs no bound.
constexpr size_t kArrangementTableLimit = size_t{1} << 20;
// Times that the second step looks for better arrangements around the best so far.
constexpr int kRounds = 6;
// A plan this near to its bound is not worth another search.
constexpr double kSmallGap = 1e-4;
// The third step: up to this many devices.
constexpr int kRefinedDevices = 16;

// A plan, and what is known of all others.
struct Found {
  Plan plan;
  int64_t objective = 0, lower_bound = 0;
  bool exact = false;
  bool limited = false;  // among a part of all plans
  int width = 0;
};

class Search {
 public:
  Search(const Program& program, const SearchOptions& options)
      : program_(program), options_(options), mesh_(mesh_of(options)), space_options_(space_options(program, options)) {
    pricing_.machine = options.time && options.topology ? &options.topology->machine : nullptr;
    pricing_.optimizer_states = options.optimizer_states;
    if (options.time && !options.topology) {
      throw Error("the objective is time: give a topology, whose links and devices say what takes how long");
    }
  }

  SearchResult run() {
    const std::string& strategy = options_.strategy;
    if (strategy.compare(0, 7, "random:") == 0) return finish(random_plan(), false);
    if (strategy == "recursive") return finish(recursive(), true);
    const Filter filter = filter_of(strategy);
    const Space space(program_, mesh_, space_options_);
    if (strategy == "spartan") return finish(spartan(space), true);
    if (options_.memory_limit > 0) return finish(within_memory(space, filter), true);
    return finish(best(space, filter, pricing_), true);
  }

 private:
  Filter filter_of(const std::string& strategy) const {
    if (strategy == "optimal" || strategy == "spartan") return {};
    const std::optional<Filter> filter = baseline(program_, strategy);
    if (filter) return *filter;
    throw Error("strategy is '" + strategy +
                "': optimal, data, model, owt, megatron, zero, spartan, recursive or random:SEED are possible");
  }

  // ---- the three steps ---------------------------------------------------------

  Found best(const Space& space, const Filter& filter, const Pricing& pricing) const {
    const Domains domains = domains_of(space, filter);
    Problem counts(space, domains, pricing);
    const Solution solution = counts.solve(kTableLimit);
    if (solution.cost >= kForbidden) throw Error("the pins leave no plan: drop or loosen some of them");
    const int64_t bound = counts.value_of(solution.lower_bound);
    Found found = arranged(space, counts.plan_of(solution), pricing, bound);
    found.width = solution.width;
    found.lower_bound = bound;
    found.limited = space.is_limited();
    // Times are sums of rounded ones.
    const int64_t rounding = pricing.machine == nullptr ? 0 : found.lower_bound / 1000000000;
    found.exact = found.objective <= found.lower_bound + rounding;
    if (found.exact) return found;
    if (mesh_.devices() <= kRefinedDevices && pricing.machine == nullptr) {
      return refined(space, domains, counts, pricing, std::move(found));
    }
    if (static_cast<double>(found.objective - found.lower_bound) < kSmallGap * static_cast<double>(found.lower_bound)) return found;
    found = simpler(space, &counts, pricing, std::move(found));
    return pricing.machine == nullptr ? found : as_for_bytes(space, filter, pricing, std::move(found));
  }

  // `found` with the other's plan, where that is better.
  static Found better(Found found, Found other) {
    if (other.objective >= found.objective) return found;
    found.plan = std::move(other.plan);
    found.objective = other.objective;
    return found;
  }

  // Narrows every domain by what `plan` chooses there. The plan must outlive the filter.
  static Filter around(const Plan& plan,
                       const std::function<void(const Division&, std::vector<Division>*)>& narrow) {
    Filter filter;
    filter.operators = [&plan, narrow](int node, std::vector<OperatorCuts>* domain) {
      narrow(plan.operators[static_cast<size_t>(node)], domain);
    };
    filter.tensors = [&plan, narrow](Entry e, std::vector<Tiling>* domain) { narrow(plan.tensors.at(e), domain); };
    filter.results = [&plan, narrow](size_t r, std::vector<Tiling>* domain) { narrow(plan.results[r], domain); };
    return filter;
  }

  static Pricing exact_prices(Pricing pricing) {
    pricing.exact = true;
    return pricing;
  }

  // Where the fastest plan is not certain: the one that moves the fewest bytes, with its
  // cuts dealt to the machine's levels as takes the least time.
  Found as_for_bytes(const Space& space, const Filter& filter, const Pricing& pricing, Found found) const {
    SearchOptions bytes = options_;
    bytes.time = false;
    const Space plain(program_, mesh_of(bytes), space_options(program_, bytes));
    const Plan fewest = best(plain, filter, {}).plan;
    // How often cuts of each size make each choice, on all levels together.
    const auto counted = [this](const Division& d) {
      std::map<std::pair<int, int>, int> counts;
      for (size_t i = 0; i < d.size(); ++i) ++counts[{mesh_.parts(static_cast<int>(i)), d[i]}];
      return counts;
    };
    const auto keep = [&counted](const Division& wanted, std::vector<Division>* domain) {
      const auto counts = counted(wanted);
      std::vector<Division> kept{wanted};
      std::copy_if(domain->begin(), domain->end(), std::back_inserter(kept),
                   [&](const Division& d) { return counted(d) == counts; });
      domain->swap(kept);
    };
    const Domains domains = domains_of(space, around(fewest, keep));
    Problem counts(space, domains, pricing);
    const Solution solution = counts.solve(kTableLimit);
    if (solution.cost >= kForbidden) return found;
    Found other = arranged(space, counts.plan_of(solution), pricing, counts.value_of(solution.lower_bound));
    return better(std::move(found), std::move(other));
  }

  // Where the best counts cannot be arranged: the best among operators that are cut
  // along two factors at most, which nearly always can.
  Found simpler(const Space& space, Problem* counts, const Pricing& pricing, Found found) const {
    const Solution solution = counts->solve(kTableLimit, [](const OperatorCuts& cuts) {
      return std::set<int>(cuts.begin(), cuts.end()).size() <= 2;
    });
    if (solution.cost >= kForbidden) return found;
    const int64_t bound = counts->value_of(solution.lower_bound);
    if (bound >= found.objective) return found;
    Found other = arranged(space, counts->plan_of(solution), pricing, bound);
    return better(std::move(found), std::move(other));
  }

  // The best arrangement of a plan's counts that is found.
  Found arranged(const Space& space, Plan plan, const Pricing& pricing, int64_t bound) const {
    const Pricing exact = exact_prices(pricing);
    int64_t least = -1;
    // Those that fit their neighbours; at last, where there are few, all of them.
    const int rounds = mesh_.devices() <= kRefinedDevices ? kRounds + 1 : kRounds;
    for (int round = 0; round < rounds; ++round) {
      const size_t limit = round == kRounds ? kArrangements : 1;
      const Domains domains = arranged_domains(space, plan, limit, round > 0);
      if (round == 0) {  // often the first of each will do
        const Found first = first_of(space, domains, exact);
        if (first.objective <= bound) return first;
      }
      Problem problem(space, domains, exact);
      const Solution solution = problem.solve(kArrangementTableLimit);
      const int64_t cost = problem.value_of(solution.cost);
      const bool better = least < 0 || cost < least;
      // A gain that nobody would notice ends the rounds.
      const bool last = !better || (least >= 0 && least - cost < least / 10000);
      if (better) plan = problem.plan_of(solution);
      least = better ? cost : least;
      if (cost <= bound) break;
      if (last) round = std::max(round, kRounds - 1);
    }
    Found found;
    found.plan = std::move(plan);
    found.objective = objective(space, found.plan, pricing);
    return found;
  }

  Found first_of(const Space& space, Domains domains, const Pricing& pricing) const {
    const auto keep_first = [](std::vector<Division>* domain) {
      if (!domain->empty()) domain->resize(1);
    };
    for (std::vector<OperatorCuts>& domain : domains.operators) keep_first(&domain);
    for (auto& item : domains.tensors) keep_first(&item.second);
    for (std::vector<Tiling>& domain : domains.results) keep_first(&domain);
    Problem problem(space, domains, pricing);
    Solution first;
    first.values.assign(problem.variable_count(), 0);
    Found found;
    found.plan = problem.plan_of(first);
    found.objective = objective(space, found.plan, pricing);
    return found;
  }

  Found refined(const Space& space, const Domains& domains, const Problem& counts,
                const Pricing& pricing, Found found) const {
    Domains left = domains;
    if (!counts.prune(found.objective, kTableLimit, &left)) return found;
    const auto spread = [&](std::vector<Division>* domain, bool pinned) {
      if (pinned) return;
      std::vector<Division> all;
      for (const Division& d : *domain) {
        const std::vector<Division> own = arrangements(mesh_, d, 1000);
        all.insert(all.end(), own.begin(), own.end());
      }
      domain->swap(all);
    };
    for (size_t i = 0; i < left.operators.size(); ++i) spread(&left.operators[i], space.is_pinned(static_cast<int>(i)));
    for (auto& [e, domain] : left.tensors) spread(&domain, space.is_pinned(e));
    for (std::vector<Tiling>& domain : left.results) spread(&domain, false);
    Problem problem(space, left, exact_prices(pricing));
    const Solution solution = problem.solve(kTableLimit);
    if (solution.cost >= kForbidden) return found;
    Found other;
    other.plan = problem.plan_of(solution);
    other.objective = objective(space, other.plan, pricing);
    found = better(std::move(found), std::move(other));
    found.lower_bound = std::max(found.lower_bound, problem.value_of(solution.lower_bound));
    found.exact = found.objective <= found.lower_bound;
    found.width = std::max(found.width, solution.width);
    return found;
  }

  // What a plan costs at these prices, that of memory included; the workspace has none.
  int64_t objective(const Space& space, const Plan& plan, const Pricing& pricing) const {
    const Evaluation e = evaluate(space, plan, pricing, &known_);
    const double held = static_cast<double>(e.memory.peak() - e.memory.workspace);
    const int64_t memory = std::llround(pricing.memory_weight * held);
    if (pricing.machine == nullptr) return e.bytes() + memory;
    return std::llround((e.communication_seconds + e.compute_seconds) * 1e12) + memory;
  }

  // ---- other strategies --------------------------------------------------------

  Found random_plan() const {
    SpaceOptions free = space_options_;
    free.free_operators = true;
    free.sample_dims = options_.spatial != SearchOptions::Spatial::kNo;
    const Space space(program_, mesh_, free);
    std::mt19937_64 random(std::strtoull(options_.strategy.c_str() + 7, nullptr, 10));
    Found found;
    Plan& plan = found.plan;
    plan.mesh = mesh_;
    for (size_t i = 0; i < program_.graph().nodes().size(); ++i) {
      const Node& node = program_.graph().nodes()[i];
      const int n = static_cast<int>(i);
      plan.operators.push_back(node.is_variable() ? OperatorCuts{} : space.random_cuts(n, &random));
      for (size_t k = 0; k < node.outputs.size(); ++k) {
        const Entry e{n, static_cast<int>(k)};
        plan.tensors[e] = space.random_tiling(e, &random);
      }
    }
    for (size_t r = 0; r < space.results().size(); ++r) plan.results.push_back(space.random_result(r, &random));
    place_fixed(space, &plan);
    return found;
  }

  // Variables that are changed in place rest where their operator is.
  void place_fixed(const Space& space, Plan* plan) const {
    const size_t outputs = program_.graph().outputs().size();
    for (size_t s = 0; s < program_.expanded.statistics.size(); ++s) {
      plan->tensors[{program_.expanded.statistics[s].variable, 0}] = plan->results[outputs + s];
    }
    for (auto& [e, tiling] : plan->tensors) {
      if (space.is_fixed(e)) tiling = space.fixed_tiling(e, plan->operators);
    }
  }

  // SoyBean's k-cut: one cut after the other, each the best given those before.
  Found recursive() const {
    Plan before;
    std::vector<int> cuts, levels;
    for (int cut = 0; cut < mesh_.cut_count(); ++cut) {
      cuts.push_back(mesh_.parts(cut));
      levels.push_back(mesh_.level(cut));
      const Mesh part(cuts, levels, !options_.time);
      SpaceOptions narrowed = space_options_;
      for (Pin& pin : narrowed.pins) {
        if (!pin.every_cut) pin.choices.resize(cuts.size());
      }
      const Space space(program_, part, narrowed);
      const auto continues = [&part](const Division& whole, const Division& start) {
        std::map<std::pair<int, int>, int> count;
        for (size_t i = 0; i < whole.size(); ++i) ++count[{part.class_of(static_cast<int>(i)), whole[i]}];
        for (size_t i = 0; i < start.size(); ++i) {
          if (--count[{part.class_of(static_cast<int>(i)), start[i]}] < 0) return false;
        }
        return true;
      };
      const auto narrow = [&](const Division& start, std::vector<Division>* domain) {
        domain->erase(std::remove_if(domain->begin(), domain->end(),
                                     [&](const Division& d) { return !continues(d, start); }),
                      domain->end());
      };
      const Domains domains = domains_of(space, cut > 0 ? around(before, narrow) : Filter{});
      Problem problem(space, domains, pricing_);
      const Solution solution = problem.solve(kTableLimit);
      if (solution.cost >= kForbidden) throw Error("the recursion finds no plan for cut " + std::to_string(cut) + ": use strategy optimal");
      before = problem.plan_of(solution);
    }
    const Space space(program_, mesh_, space_options_);
    if (mesh_.cut_count() == 0) return best(space, {}, pricing_);
    return arranged(space, before, pricing_, 0);
  }

  Found spartan(const Space& space) const {
    const Domains domains = domains_of(space, {});
    Problem problem(space, domains, pricing_);
    return arranged(space, problem.plan_of(problem.greedy(by_size(program_), kTableLimit)), pricing_, 0);
  }

  // ---- memory ------------------------------------------------------------------

  Found within_memory(const Space& space, const Filter& filter) const {
    const int64_t limit = options_.memory_limit;
    const auto peak = [&](const Plan& plan) { return evaluate(space, plan, pricing_, &known_).memory.peak(); };
    Found free = best(space, filter, pricing_);
    if (peak(free.plan) <= limit) return free;

    // Prices start low, and do not depend on the limit: the least that they lead to does
    // not either.
    std::optional<Found> fitting;
    int64_t bound = free.lower_bound, least = peak(free.plan);
    const double unit = static_cast<double>(std::max<int64_t>(free.objective, 1)) / static_cast<double>(least);
    const auto attempt = [&](double weight) {
      Pricing priced = pricing_;
      priced.memory_weight = weight;
      Found found = best(space, filter, priced);
      const int64_t needed = peak(found.plan);
      least = std::min(least, needed);
      bound = std::max(bound, found.lower_bound - static_cast<int64_t>(std::llround(weight * static_cast<double>(limit))));
      if (needed > limit) return false;
      found.objective = objective(space, found.plan, pricing_);
      if (!fitting || found.objective < fitting->objective) fitting = std::move(found);
      return true;
    };
    double low = 0, high = unit / 16;
    bool fits = false;
    for (int step = 0; step < 6 && !fits; ++step) {
      fits = attempt(high);
      if (!fits) {
        low = high;
        high *= 8;
      }
    }
    if (!fits) {
      throw Error("no plan for " + std::to_string(mesh_.devices()) + " devices fits into " + std::to_string(limit) +
                  " bytes of memory per device: the smallest limit that works is " + std::to_string(least) +
                  " bytes; raise the limit, use more devices or a smaller batch");
    }
    for (int step = 0; step < 10; ++step) {
      const double middle = low == 0 ? high / 8 : std::sqrt(low * high);
      (attempt(middle) ? high : low) = middle;
    }
    fitting->lower_bound = std::min(bound, fitting->objective);
    fitting->exact = fitting->objective <= bound;
    return *fitting;
  }

  // ---- the result --------------------------------------------------------------

  SearchResult finish(Found found, bool searched) const {
    SearchResult result;
    const bool moved = leave_statistics_alike(program_, &found.plan);
    found.plan.strategy = options_.strategy;
    found.plan.whole_boundary = options_.whole_boundary;
    check_plan(program_, found.plan);
    const Space space(program_, mesh_, space_options_);
    Pricing report;
    report.machine = options_.topology ? &options_.topology->machine : nullptr;
    report.optimizer_states = options_.optimizer_states;
    result.evaluation = evaluate(space, found.plan, report, &known_);
    if (options_.memory_by_device) {
      const KeptTensors kept(program_);
      for (int device = 0; device < mesh_.devices(); ++device) {
        result.memory_by_device.push_back(device_memory(space, found.plan, kept, options_.optimizer_states, device));
      }
    }
    if (moved) found.exact = found.exact && pricing_.machine == nullptr && result.evaluation.bytes() <= found.lower_bound;
    const int64_t needed = result.evaluation.memory.peak();
    if (options_.memory_limit > 0 && needed > options_.memory_limit) {
      throw Error("strategy " + options_.strategy + " does not fit into " + std::to_string(options_.memory_limit) +
                  " bytes of memory per device: it needs " + std::to_string(needed) +
                  "; raise the limit or use strategy optimal, which searches for plans that fit");
    }
    const bool bounded = searched && options_.strategy != "recursive" && options_.strategy != "spartan";
    result.exact = bounded && found.exact && !found.limited;
    result.width = found.width;
    result.spatial = space_options_.sample_dims;
    result.objective = pricing_.machine == nullptr ? result.evaluation.bytes() : found.objective;
    if (bounded) {
      result.lower_bound = found.lower_bound;
    } else if (searched) {  // what the best plan costs at least
      result.lower_bound = bound(space, pricing_);
    }
    result.lower_bound_bytes = pricing_.machine == nullptr ? result.lower_bound : searched ? bound(space, {}) : 0;
    result.limited = found.limited || space.is_limited();
    found.plan.exact = result.exact;
    result.plan = std::move(found.plan);
    return result;
  }

  int64_t bound(const Space& space, const Pricing& pricing) const {
    const Domains domains = domains_of(space, {});
    const Problem problem(space, domains, pricing);
    return problem.value_of(problem.solve(kTableLimit).lower_bound);
  }

  const Program& program_;
  const SearchOptions& options_;
  const Mesh mesh_;
  const SpaceOptions space_options_;
  Pricing pricing_;
  mutable KnownConversions known_;
};

}  // namespace

Mesh mesh_of(const SearchOptions& options) {
  if (!options.topology) return Mesh(options.devices);
  const Mesh& mesh = options.topology->mesh;
  if (options.time) return mesh;
  // Bytes are the same on all links.
  std::vector<int> cuts, levels;
  for (int cut = 0; cut < mesh.cut_count(); ++cut) {
    cuts.push_back(mesh.parts(cut));
    levels.push_back(mesh.level(cut));
  }
  return Mesh(std::move(cuts), std::move(levels), true);
}

SpaceOptions space_options(const Program& program, const SearchOptions& options) {
  // Where an input has fewer samples than there are devices, the dims of samples have to
  // be cut or some devices would have nothing to do.
  const std::vector<Node>& nodes = program.graph().nodes();
  const int devices = mesh_of(options).devices();
  const bool short_batch = std::any_of(nodes.begin(), nodes.end(), [devices](const Node& node) {
    if (!node.is_variable() || node.role != Role::kInput || node.outputs[0].shape.empty()) return false;
    return node.outputs[0].shape[0] < devices;
  });
  SpaceOptions out;
  out.whole_boundary = options.whole_boundary;
  out.pins = options.pins;
  out.sample_dims = options.spatial == SearchOptions::Spatial::kYes ||
                    (options.spatial == SearchOptions::Spatial::kAuto && short_batch);
  out.priced_computation = options.time;
  return out;
}

SearchResult search(const Program& program, const SearchOptions& options) {
  return Search(program, options).run();
}

}  // namespace soybean
