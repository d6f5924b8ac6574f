#include "tiling/conversion.h"

#include <algorithm>
#include <queue>

namespace soybean {
namespace {

// The elements along an extent that fall into part g of p of each block, when
// `outer` cuts have divided the extent into blocks first.
int64_t part_total(const Mesh& mesh, const Tiling& tiling, int cut, int dim, int64_t extent, int g) {
  std::vector<Range> blocks{{0, extent}};
  for (int c = mesh.cut_count() - 1; c > cut; --c) {
    if (tiling[static_cast<size_t>(c)] != dim) continue;
    std::vector<Range> finer;
    for (const Range& block : blocks) {
      for (int i = 0; i < mesh.parts(c); ++i) finer.push_back(part_of(block, mesh.parts(c), i));
    }
    blocks.swap(finer);
  }
  int64_t total = 0;
  for (const Range& block : blocks) total += part_of(block, mesh.parts(cut), g).length();
  return total;
}

// How many groups of devices hold a copy of their own, and how many exchanges
// take place at once, over the cuts other than `cut`.
struct Multiplicity {
  int64_t copies = 1, exchanges = 1;
};

Multiplicity multiplicity(const Mesh& mesh, const Tiling& tiling, int cut) {
  Multiplicity m;
  for (int c = 0; c < mesh.cut_count(); ++c) {
    if (c == cut) continue;
    const Choice choice = tiling[static_cast<size_t>(c)];
    if (choice == kReplicated || choice == kPartial) m.copies *= mesh.parts(c);
    if (choice != kOwner) m.exchanges *= mesh.parts(c);
  }
  return m;
}

// Whether `cut` divides or joins neighbouring blocks of `dim`.
bool innermost(const Tiling& tiling, int cut, int dim) {
  return std::find(tiling.begin(), tiling.begin() + cut, dim) == tiling.begin() + cut;
}

bool possible(const Tiling& tiling, const Step& step) {
  if (step.from == step.to || step.to == kPartial) return false;
  if (step.from >= 0 && !innermost(tiling, step.cut, step.from)) return false;
  return step.to < 0 || innermost(tiling, step.cut, step.to);
}

}  // namespace

Cost step_cost(const Mesh& mesh, const TensorType& type, const Tiling& tiling, const Step& step) {
  const int64_t p = mesh.parts(step.cut);
  const Multiplicity m = multiplicity(mesh, tiling, step.cut);
  const int64_t all = byte_count(type) * m.copies;  // of every exchange together
  const auto extent = [&](Choice d) { return type.shape[static_cast<size_t>(d)]; };
  const auto part = [&](Choice d, int g) {
    return part_total(mesh, tiling, step.cut, d, extent(d), g);
  };

  if (step.from == kReplicated) return {};
  if (step.from >= 0 && step.to >= 0) {  // all-to-all: what already is in place stays
    int64_t kept = 0;
    for (int g = 0; g < p; ++g) kept += part(step.from, g) * part(step.to, g);
    return {all - all / extent(step.from) / extent(step.to) * kept, m.exchanges * p * (p - 1)};
  }
  if ((step.from >= 0 && step.to == kOwner) || (step.from == kOwner && step.to >= 0)) {
    const Choice d = std::max(step.from, step.to);
    return {all - all / extent(d) * part(d, 0), m.exchanges * (p - 1)};
  }
  if (step.from == kOwner) return {all * (p - 1), m.exchanges * (p - 1)};
  if (step.to == kOwner) return {all * (p - 1), m.exchanges * (p - 1)};  // reduce
  if (step.from == kPartial && step.to == kReplicated) {
    return {all * p * (p - 1), m.exchanges * p * (p - 1)};
  }
  return {all * (p - 1), m.exchanges * p * (p - 1)};  // all-gather, reduce-scatter
}

ConversionGraph::ConversionGraph(const Mesh& mesh, const TensorType& type,
                                 const std::vector<Choice>& choices)
    : mesh_(mesh), type_(type), choices_(choices) {
  choices_.push_back(kReplicated);
  std::sort(choices_.begin(), choices_.end());
  choices_.erase(std::unique(choices_.begin(), choices_.end()), choices_.end());
  states_ = 1;
  for (int cut = 0; cut < mesh.cut_count(); ++cut) {
    if (states_ > (1 << 24) / static_cast<int>(choices_.size())) {
      throw Error("a tensor of shape " + shape_text(type.shape) + " has too many tilings over " +
                  std::to_string(mesh.devices()) + " devices to search: use fewer devices");
    }
    states_ *= static_cast<int>(choices_.size());
  }
}

int ConversionGraph::state_of(const Tiling& tiling) const {
  if (!fits(mesh_, tiling, type_.shape)) return -1;
  int state = 0;
  for (const Choice choice : tiling) {
    const auto it = std::lower_bound(choices_.begin(), choices_.end(), choice);
    if (it == choices_.end() || *it != choice) return -1;
    state = state * static_cast<int>(choices_.size()) + static_cast<int>(it - choices_.begin());
  }
  return state;
}

Tiling ConversionGraph::tiling_of(int state) const {
  const int base = static_cast<int>(choices_.size());
  Tiling tiling(static_cast<size_t>(mesh_.cut_count()));
  for (size_t cut = tiling.size(); cut-- > 0; state /= base) {
    tiling[cut] = choices_[static_cast<size_t>(state % base)];
  }
  return tiling;
}

std::vector<std::pair<int, Step>> ConversionGraph::neighbours(int state,
                                                              const Tiling& tiling) const {
  std::vector<std::pair<int, Step>> out;
  const int base = static_cast<int>(choices_.size());
  int weight = 1;
  for (int cut = mesh_.cut_count() - 1; cut >= 0; --cut, weight *= base) {
    const int own = state / weight % base;
    for (int other = 0; other < base; ++other) {
      const Step step{cut, tiling[static_cast<size_t>(cut)], choices_[static_cast<size_t>(other)]};
      if (!possible(tiling, step)) continue;
      Tiling next = tiling;
      next[static_cast<size_t>(cut)] = step.to;
      if (fits(mesh_, next, type_.shape)) out.emplace_back(state + (other - own) * weight, step);
    }
  }
  return out;
}

const ConversionGraph::Source& ConversionGraph::from(int state) {
  const auto found = sources_.find(state);
  if (found != sources_.end()) return found->second;
  Source& source = sources_[state];
  source.cost.assign(static_cast<size_t>(states_), kImpossible);
  source.previous.assign(static_cast<size_t>(states_), -1);
  source.cost[static_cast<size_t>(state)] = {};

  struct Reached {
    Cost cost;
    int state;
    bool operator<(const Reached& other) const {  // the cheapest first
      return other.cost < cost || (cost == other.cost && other.state < state);
    }
  };
  std::priority_queue<Reached> queue;
  queue.push({{}, state});
  while (!queue.empty()) {
    const Reached at = queue.top();
    queue.pop();
    if (source.cost[static_cast<size_t>(at.state)] < at.cost) continue;
    const Tiling tiling = tiling_of(at.state);
    for (const auto& [next, step] : neighbours(at.state, tiling)) {
      const Cost cost = at.cost + step_cost(mesh_, type_, tiling, step);
      if (cost < source.cost[static_cast<size_t>(next)]) {
        source.cost[static_cast<size_t>(next)] = cost;
        source.previous[static_cast<size_t>(next)] = at.state;
        queue.push({cost, next});
      }
    }
  }
  return source;
}

Cost ConversionGraph::cost(const Tiling& from_tiling, const Tiling& to_tiling) {
  if (from_tiling == to_tiling) return {};
  const int a = state_of(from_tiling), b = state_of(to_tiling);
  if (a < 0 || b < 0) return kImpossible;
  return from(a).cost[static_cast<size_t>(b)];
}

std::vector<Step> ConversionGraph::route(const Tiling& from_tiling, const Tiling& to_tiling) {
  std::vector<Step> steps;
  if (from_tiling == to_tiling) return steps;
  const int a = state_of(from_tiling);
  int b = state_of(to_tiling);
  if (a < 0 || b < 0 || is_impossible(from(a).cost[static_cast<size_t>(b)])) {
    throw Error("internal error: no conversion of a tensor of shape " + shape_text(type_.shape));
  }
  const Source& source = from(a);
  while (b != a) {
    const int before = source.previous[static_cast<size_t>(b)];
    const Tiling tiling = tiling_of(before), next = tiling_of(b);
    for (int cut = 0; cut < mesh_.cut_count(); ++cut) {
      const size_t c = static_cast<size_t>(cut);
      if (tiling[c] != next[c]) steps.push_back({cut, tiling[c], next[c]});
    }
    b = before;
  }
  std::reverse(steps.begin(), steps.end());
  return steps;
}

}  // namespace soybean
