// overlap: stages on consecutive devices, wherever servers begin and end.
//
// What a boundary takes depends on the devices of both of its stages, of which a partial
// pipeline knows the first alone. So a partial pipeline is found for each kind of link
// that its last boundary may be priced for, and is extended only by stages whose links
// are no slower. The dearer prices lose wherever the cheaper are allowed.
#include <algorithm>
#include <cmath>
#include <limits>

#include "pipeline/stages.h"

namespace soybean {
namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();

size_t index(int i) { return static_cast<size_t>(i); }

class ServerSearch {
 public:
  ServerSearch(const CutSet& cuts, const Servers& servers, const StageOptions& options)
      : cuts_(cuts), servers_(servers), options_(options), devices_(servers.devices()), levels_(servers.levels()) {
    for (int first = 0; first < devices_; ++first) {
      for (int count = 1; first + count <= devices_; ++count) {
        exchange_.push_back(servers.exchange_seconds_per_byte(first, count));
      }
    }
    const size_t n = cuts.size() * index(devices_ + 1) * index(levels_);
    seconds_.assign(n, kNever);
    traffic_.assign(n, 0);
    stages_.assign(n, 0);
    steps_.assign(n, Step());
    if (fits(0, last(), 0, devices_)) bound_ = stage_seconds(0, last(), 0, devices_);
  }

  StagePlan run() {
    for (size_t k = 0; k < last(); ++k) {
      const std::vector<int> firsts = reached(k);
      for (size_t j = k + 1; j < cuts_.size() && !firsts.empty(); ++j) {
        if (cuts_.precedes(k, j)) extend(k, j, firsts);
      }
    }
    return traced();
  }

 private:
  struct Step {
    int from = -1;      // the cut before the last stage
    int replicas = 0;   // of it
    int link = 0;       // that the boundary before it was priced for
  };

  size_t last() const { return cuts_.size() - 1; }
  size_t at(size_t cut, int devices, int link) const {
    return (cut * index(devices_ + 1) + index(devices)) * index(levels_) + index(link);
  }

  double exchange(int first, int count) const {
    // Rows of the table hold devices_, devices_ - 1, ... counts.
    const int before = first * devices_ - first * (first - 1) / 2;
    return exchange_[index(before + count - 1)];
  }

  bool fits(size_t from, size_t to, int first, int replicas) const {
    if (options_.memory_limit == 0) return true;
    const int in_flight = minibatches_in_flight(devices_, first, replicas);
    return stage_memory(cuts_, from, to, in_flight, options_.optimizer_states).total() <= options_.memory_limit;
  }

  double stage_seconds(size_t from, size_t to, int first, int replicas) const {
    const double compute = cuts_[to].seconds - cuts_[from].seconds;
    const double weights = cuts_[to].parameters - cuts_[from].parameters;
    return std::max(compute, weights * exchange(first, replicas)) / replicas;
  }

  double boundary_seconds(size_t cut, int link, int replicas) const {
    return 2 * cuts_[cut].crossing / (servers_.rate_across(link) * replicas);
  }

  // The numbers of devices of pipelines up to a cut.
  std::vector<int> reached(size_t k) const {
    if (k == 0) return {0};
    std::vector<int> found;
    for (int devices = 1; devices < devices_; ++devices) {
      double best = kNever;
      for (int link = 0; link < levels_; ++link) best = std::min(best, seconds_[at(k, devices, link)]);
      if (best < kNever && best <= bound_) found.push_back(devices);
    }
    return found;
  }

  // The fewest devices that are fast enough for so many seconds of compute.
  int fewest(double compute) const {
    if (!(bound_ > 0) || bound_ == kNever) return 0;
    return static_cast<int>(std::min(std::ceil(compute / bound_ * (1 - 1e-9)), devices_ + 1.0));
  }

  void extend(size_t k, size_t j, const std::vector<int>& firsts) {
    const int least = std::max(1, fewest(cuts_[j].seconds - cuts_[k].seconds));
    const int behind = j == last() ? 0 : std::max(1, fewest(cuts_[last()].seconds - cuts_[j].seconds));
    for (const int first : firsts) {
      const int most = devices_ - first - behind;
      // All devices are used.
      for (int replicas = j == last() ? std::max(least, most) : least; replicas <= most; ++replicas) {
        const double seconds = stage_seconds(k, j, first, replicas);
        if (seconds > bound_ || !fits(k, j, first, replicas)) continue;
        for (int link = 0; link < levels_; ++link) {
          const double before = prefix(k, first, link);
          if (before > bound_) continue;
          double in = 0;
          if (k > 0) {
            if (link > servers_.between(first - 1, first + replicas - 1)) continue;
            in = boundary_seconds(k, link, replicas);
          } else if (link > 0) {
            continue;
          }
          leave(k, j, first, replicas, link, std::max({before, seconds, in}));
        }
      }
    }
  }

  double prefix(size_t k, int devices, int link) const { return k == 0 ? 0 : seconds_[at(k, devices, link)]; }

  // Keeps a pipeline up to cut j for each kind of link that may lie behind it.
  void leave(size_t k, size_t j, int first, int replicas, int link, double seconds) {
    const double before = k == 0 ? 0 : traffic_[at(k, first, link)];
    const double traffic = before + (cuts_[j].parameters - cuts_[k].parameters) * exchange(first, replicas);
    const int stages = k == 0 ? 1 : stages_[at(k, first, link)] + 1;
    const int slowest = j == last() ? 0 : std::min(levels_ - 1, servers_.between(first, first + replicas - 1));
    for (int next = 0; next <= slowest; ++next) {
      const double out = j == last() ? 0 : boundary_seconds(j, next, replicas);
      const double value = std::max(seconds, out);
      const size_t place = at(j, first + replicas, next);
      if (value > bound_ || value > seconds_[place] || value == kNever) continue;
      if (value == seconds_[place] && !better_of_equals(traffic, stages, traffic_[place], stages_[place])) continue;
      seconds_[place] = value;
      traffic_[place] = traffic;
      stages_[place] = stages;
      steps_[place] = {static_cast<int>(k), replicas, link};
      if (j == last()) bound_ = std::min(bound_, value);
    }
  }

  StagePlan traced() const {
    StagePlan plan;
    plan.seconds = seconds_[at(last(), devices_, 0)];
    if (plan.seconds == kNever) return plan;
    int devices = devices_, link = 0;
    for (size_t to = last(); to > 0;) {
      const Step& step = steps_[at(to, devices, link)];
      Stage stage;
      stage.from = static_cast<size_t>(step.from);
      stage.to = to;
      stage.replicas = step.replicas;
      stage.first_device = devices - step.replicas;
      stage.seconds = stage_seconds(stage.from, to, stage.first_device, step.replicas);
      stage.in_flight = minibatches_in_flight(devices_, stage.first_device, step.replicas);
      stage.memory = stage_memory(cuts_, stage.from, to, stage.in_flight, options_.optimizer_states);
      plan.stages.push_back(stage);
      to = stage.from;
      devices = stage.first_device;
      link = step.link;
    }
    std::reverse(plan.stages.begin(), plan.stages.end());
    for (const Stage& stage : plan.stages) {
      plan.groups.push_back({stage.replicas, {}});
      if (stage.from == 0) continue;
      const Stage& before = plan.stages[plan.groups.size() - 2];
      const int between = servers_.between(before.first_device, stage.first_device + stage.replicas - 1);
      plan.boundaries.push_back(boundary_seconds(stage.from, between, std::min(before.replicas, stage.replicas)));
    }
    return plan;
  }

  const CutSet& cuts_;
  const Servers& servers_;
  const StageOptions& options_;
  const int devices_, levels_;
  std::vector<double> exchange_;  // by first device and count
  std::vector<double> seconds_;   // by cut, devices and kind of link
  std::vector<double> traffic_;   // seconds of all exchanges
  std::vector<int> stages_;
  std::vector<Step> steps_;
  double bound_ = kNever;  // a pipeline that takes longer is part of no best one
};

}  // namespace

StagePlan plan_across_servers(const CutSet& cuts, const Servers& servers, const StageOptions& options) {
  return ServerSearch(cuts, servers, options).run();
}

}  // namespace soybean
