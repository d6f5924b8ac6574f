// released, v1 and sosp: stages of groups of devices, level by level.
#include <algorithm>
#include <limits>
#include <map>
#include <tuple>

#include "graph/graph.h"
#include "pipeline/stages.h"

namespace soybean {
namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();
constexpr size_t kNone = std::numeric_limits<size_t>::max();

size_t index(int i) { return static_cast<size_t>(i); }

// Where a part of a pipeline stands in the whole: what decides the memory of its stages.
struct Place {
  int earlier = 0;  // devices of earlier stages
  int copies = 1;   // how often this part is replicated
};

// Groups of one level: `count` of them, each of `devices` devices, make a group of the next.
struct GroupLevel {
  int count = 1;
  int devices = 1;
  double bandwidth = 1;
};

std::vector<GroupLevel> group_levels(const Servers& servers, StageCost cost) {
  if (cost == StageCost::kV1) return {{servers.devices(), 1, servers.slowest()}};
  std::vector<GroupLevel> levels;
  int devices = 1;
  for (int l = servers.levels() - 1; l >= 0; --l) {
    if (servers.groups(l) == 0) {
      throw Error("the servers have unequal numbers of devices, which are not planned level by level: choose the "
                  "cost model overlap or v1");
    }
    levels.push_back({servers.groups(l), devices, servers.bandwidth(l)});
    devices *= servers.groups(l);
  }
  return levels;
}

// The best pipelines from one cut, by the number of groups and the cut that they reach.
struct Table {
  Table(size_t cuts, int groups) : cuts_(cuts) {
    const size_t n = cuts * index(groups + 1);
    seconds.assign(n, kNever);
    traffic.assign(n, 0);
    stages.assign(n, 0);
    from.assign(n, -1);
    groups_of_last.assign(n, 0);
  }
  size_t at(int groups, size_t cut) const { return index(groups) * cuts_ + cut; }

  // A pipeline that extends another (kNone: is its first stage), unless there is a better one.
  void keep(size_t place, double value, size_t before, int cut, int groups, double exchanged) {
    const double total = exchanged + (before == kNone ? 0 : traffic[before]);
    const int count = 1 + (before == kNone ? 0 : stages[before]);
    if (value == seconds[place] && !better_of_equals(total, count, traffic[place], stages[place])) return;
    seconds[place] = value;
    traffic[place] = total;
    stages[place] = count;
    from[place] = cut;
    groups_of_last[place] = groups;
  }

  std::vector<double> seconds;
  std::vector<double> traffic;      // seconds of all exchanges
  std::vector<int> stages;
  std::vector<int> from;            // the cut before the last stage
  std::vector<int> groups_of_last;  // which it has

 private:
  size_t cuts_;
};

// Stages with what they and their boundaries take; `after` is what is charged for the
// boundary behind them.
struct Traced {
  std::vector<Stage> stages;
  std::vector<StageGroup> groups;
  std::vector<double> boundaries;
  double after = 0;
};

// What stages of a number of groups of one level take.
struct LevelPrices {
  std::vector<double> share;     // of its groups' time, for a minibatch of the pipeline
  std::vector<double> exchange;  // seconds for each byte of weights
  std::vector<double> boundary;  // seconds of the boundary at each cut, by number of groups
};

class LevelSearch {
 public:
  LevelSearch(const CutSet& cuts, const Servers& servers, const StageOptions& options)
      : cuts_(cuts), options_(options), levels_(group_levels(servers, options.cost)), devices_(servers.devices()) {
    set_prices();
    // The whole network as one stage of all groups of each level.
    double whole = cuts_[last()].seconds;
    for (int l = 1; l <= top(); ++l) whole = stage_seconds(l, 0, last(), level(l).count, whole, true);
    bounds_.assign(levels_.size() + 1, kNever);
    if (options.memory_limit == 0 || fits(0, last(), {0, devices_})) {
      for (int l = top(); l >= 1; --l) {
        bounds_[index(l)] = whole * (1 + 1e-12);
        whole *= level(l).count;
      }
    }
  }

  StagePlan run() {
    const Table table = solve(top(), 0, {});
    const double seconds = table.seconds[table.at(level(top()).count, last())];
    if (seconds == kNever) return {{}, {}, {}, kNever};
    Traced traced = trace(top(), 0, last(), {});
    return {std::move(traced.stages), std::move(traced.groups), std::move(traced.boundaries), seconds};
  }

 private:
  int top() const { return static_cast<int>(levels_.size()); }
  size_t last() const { return cuts_.size() - 1; }
  const GroupLevel& level(int l) const { return levels_[index(l - 1)]; }
  bool limited() const { return options_.memory_limit > 0; }

  bool fits(size_t from, size_t to, Place place) const {
    const int in_flight = minibatches_in_flight(devices_, place.earlier, place.copies);
    return stage_memory(cuts_, from, to, in_flight, options_.optimizer_states).total() <= options_.memory_limit;
  }

  double exchange_seconds(int l, size_t from, size_t to, int groups) const {
    const double weights = cuts_[to].parameters - cuts_[from].parameters;
    return weights * prices_[index(l - 1)].exchange[index(groups)];
  }

  // What a stage of some groups takes, of which one alone takes `alone`.
  double stage_seconds(int l, size_t from, size_t to, int groups, double alone, bool first) const {
    double exchange = exchange_seconds(l, from, to, groups);
    const double share = prices_[index(l - 1)].share[index(groups)];
    if (options_.cost != StageCost::kReleased) return std::max(alone, exchange) * share;
    if (first) exchange /= level(l).devices;
    return (alone + exchange) * share;
  }

  // What the boundary at a cut takes beside a stage of some groups.
  double boundary_seconds(int l, size_t cut, int groups) const {
    return prices_[index(l - 1)].boundary[index(groups) * cuts_.size() + cut];
  }
  // What is charged to a stage that is not the first of its row.
  double transfer_seconds(int l, size_t from, size_t to, int groups) const {
    const double in = boundary_seconds(l, from, groups);
    return options_.cost == StageCost::kReleased ? std::max(in, boundary_seconds(l, to, groups)) : in;
  }

  void set_prices() {
    for (const GroupLevel& level : levels_) {
      LevelPrices prices;
      prices.boundary.assign(index(level.count + 1) * cuts_.size(), 0);
      for (int groups = 0; groups <= level.count; ++groups) {
        prices.share.push_back(groups == 0 ? 0 : 1.0 / groups);
        prices.exchange.push_back(groups == 0 ? 0 : 4.0 * (groups - 1) / (groups * level.bandwidth));
        for (size_t cut = 1; groups > 0 && cut < last(); ++cut) {
          const double seconds = 2 * cuts_[cut].crossing / level.bandwidth;
          const bool shared = options_.cost == StageCost::kReleased;
          prices.boundary[index(groups) * cuts_.size() + cut] = shared ? seconds / groups : seconds;
        }
      }
      prices_.push_back(std::move(prices));
    }
  }

  // What one group of the level below takes for the layers from a cut to each later one.
  std::vector<double> alone_seconds(int l, size_t from, Place place) {
    std::vector<double> row(cuts_.size(), kNever);
    if (l == 1) {
      for (size_t to = from + 1; to < cuts_.size(); ++to) {
        if (!limited() || fits(from, to, place)) row[to] = cuts_[to].seconds - cuts_[from].seconds;
      }
      return row;
    }
    const bool kept = levels_.size() > 2;  // where rows are asked for again and again
    const Place at = limited() ? place : Place();
    const auto key = std::make_tuple(l, from, at.earlier, at.copies);
    if (kept) {
      const auto found = rows_.find(key);
      if (found != rows_.end()) return found->second;
    }
    const Table table = solve(l - 1, from, place);
    for (size_t to = from + 1; to < cuts_.size(); ++to) row[to] = table.seconds[table.at(level(l - 1).count, to)];
    if (kept) rows_.emplace(key, row);
    return row;
  }

  Place inside(int l, Place place, int groups_before, int groups) const {
    return {place.earlier + place.copies * groups_before * level(l).devices, place.copies * groups};
  }

  double rest_seconds(size_t cut) const { return cuts_[last()].seconds - cuts_[cut].seconds; }

  Table solve(int l, size_t start, Place place) {
    const int count = level(l).count;
    const double bound = bounds_[index(l)];
    Table table(cuts_.size(), count);
    std::vector<size_t> later, usable;  // cuts behind, and those of them that a stage may reach
    std::vector<double> alone, seconds(cuts_.size());
    for (size_t k = start; k < cuts_.size(); ++k) {
      const bool first = k == start;
      if (!first && !reached(table, k, count)) continue;
      later.clear();
      for (size_t j = k + 1; j < cuts_.size(); ++j) {
        if (cuts_.precedes(k, j)) later.push_back(j);
      }
      if (!limited()) alone = alone_seconds(l, k, place);
      const auto price = [&](int groups) {
        usable.clear();
        for (const size_t j : later) {
          seconds[j] = stage_seconds(l, k, j, groups, alone[j], first);
          if (!first) seconds[j] = std::max(seconds[j], transfer_seconds(l, k, j, groups));
          if (seconds[j] <= bound && seconds[j] < kNever) usable.push_back(j);
        }
      };
      for (int groups = 1; groups <= count; ++groups) {
        const int most = first ? 0 : count - groups;
        if (!limited() && (first || most > 0)) price(groups);
        for (int before = first ? 0 : 1; before <= most; ++before) {
          const double prefix = first ? 0 : table.seconds[table.at(before, k)];
          if (prefix > bound || prefix == kNever) continue;
          if (limited()) {
            alone = alone_seconds(l, k, inside(l, place, before, groups));
            price(groups);
          }
          const size_t to = table.at(before + groups, 0);
          // What the groups that are left can compute in time; of a part of a pipeline, all.
          const double behind = l < top() ? kNever : bound * (count - before - groups) * level(l).devices;
          for (const size_t j : usable) {
            const double value = std::max(prefix, seconds[j]);
            if (value > table.seconds[to + j] || rest_seconds(j) > behind * (1 + 1e-9)) continue;
            table.keep(to + j, value, first ? kNone : table.at(before, k), static_cast<int>(k), groups,
                       exchange_seconds(l, k, j, groups));
          }
        }
      }
    }
    return table;
  }

  static bool reached(const Table& table, size_t cut, int count) {
    for (int groups = 1; groups < count; ++groups) {
      if (table.seconds[table.at(groups, cut)] < kNever) return true;
    }
    return false;
  }

  // The stages between two cuts on one group of level l + 1.
  Traced trace(int l, size_t start, size_t end, Place place) {
    const Table table = solve(l, start, place);
    struct Step {
      size_t from, to;
      int groups;
    };
    std::vector<Step> steps;
    int left = level(l).count;
    for (size_t to = end; to != start;) {
      const size_t at = table.at(left, to);
      steps.push_back({static_cast<size_t>(table.from[at]), to, table.groups_of_last[at]});
      to = steps.back().from;
      left -= steps.back().groups;
    }
    std::reverse(steps.begin(), steps.end());
    Traced result;
    int before = 0;
    for (size_t s = 0; s < steps.size(); ++s) {
      const Step& step = steps[s];
      const bool first = s == 0;
      Traced part = within(l, step.from, step.to, inside(l, place, before, step.groups));
      const auto wrapped = [&](double seconds) {
        return stage_seconds(l, step.from, step.to, step.groups, seconds, first);
      };
      if (!first) {
        result.boundaries.push_back(std::max(result.after, boundary_seconds(l, step.from, step.groups)));
      }
      result.after = part.after > 0 ? wrapped(part.after) : 0;
      if (!first && options_.cost == StageCost::kReleased) {
        result.after = std::max(result.after, boundary_seconds(l, step.to, step.groups));
      }
      for (Stage& stage : part.stages) {
        stage.seconds = wrapped(stage.seconds);
        result.stages.push_back(std::move(stage));
      }
      for (const double boundary : part.boundaries) result.boundaries.push_back(wrapped(boundary));
      result.groups.push_back({step.groups, std::move(part.groups)});
      before += step.groups;
    }
    return result;
  }

  Traced within(int l, size_t from, size_t to, Place place) {
    if (l > 1) return trace(l - 1, from, to, place);
    Stage stage;
    stage.from = from;
    stage.to = to;
    stage.replicas = place.copies;
    stage.first_device = place.earlier;
    stage.in_flight = minibatches_in_flight(devices_, place.earlier, place.copies);
    stage.memory = stage_memory(cuts_, from, to, stage.in_flight, options_.optimizer_states);
    stage.seconds = cuts_[to].seconds - cuts_[from].seconds;
    return {{stage}, {}, {}, 0};
  }

  const CutSet& cuts_;
  const StageOptions& options_;
  const std::vector<GroupLevel> levels_;  // from the innermost
  const int devices_;
  std::vector<LevelPrices> prices_;
  std::vector<double> bounds_;  // by level: a pipeline that takes longer is part of no best one
  std::map<std::tuple<int, size_t, int, int>, std::vector<double>> rows_;
};

}  // namespace

StagePlan plan_levels(const CutSet& cuts, const Servers& servers, const StageOptions& options) {
  return LevelSearch(cuts, servers, options).run();
}

}  // namespace soybean
