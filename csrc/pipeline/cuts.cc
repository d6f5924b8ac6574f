#include "pipeline/cuts.h"

#include <algorithm>
#include <cmath>
#include <map>

namespace soybean {
namespace {

size_t index(int i) { return static_cast<size_t>(i); }

class Growth {
 public:
  Growth(const LayerGraph& graph, CutSet::Kind kind) : graph_(graph), kind_(kind) {
    for (int i = 0; i < graph.size(); ++i) needs_.push_back(graph.needs(i));
    if (kind == CutSet::Kind::kReleased) find_shared();
  }

  LayerSet none() const { return LayerSet(index(graph_.size())); }
  LayerSet all() const {
    LayerSet set = none();
    for (int i = 0; i < graph_.size(); ++i) set.insert(i);
    return set;
  }

  // The layers that may be added next.
  std::vector<int> available(const LayerSet& set) const {
    if (kind_ == CutSet::Kind::kReleased) return available_readers(set);
    std::vector<int> found;
    for (int i = 0; i < graph_.size(); ++i) {
      const std::vector<int>& sources = graph_.sources(i);
      const auto held = [&](int s) { return set.has(s); };
      if (!set.has(i) && std::all_of(sources.begin(), sources.end(), held)) found.push_back(i);
    }
    return found;
  }

  LayerSet with(LayerSet set, int layer) const {
    set.insert(needs_[index(layer)]);
    return set;
  }

  Cut measured(const LayerSet& set) const {
    Cut cut;
    for (int i = 0; i < graph_.size(); ++i) {
      if (!set.has(i)) continue;
      const Layer& layer = graph_.layer(i);
      ++cut.layers;
      cut.seconds += layer.seconds;
      cut.parameters += layer.parameters;
      cut.activations += layer.activation + layer.data;
    }
    cut.crossing = kind_ == CutSet::Kind::kExact ? crossing(set) : released_crossing(set);
    return cut;
  }

 private:
  // Readers of what is held. What else they need is added with them.
  std::vector<int> available_readers(const LayerSet& set) const {
    std::vector<int> found;
    for (int i = 0; i < graph_.size(); ++i) {
      if (set.has(i)) continue;
      const std::vector<int>& sources = graph_.sources(i);
      const bool reads = std::any_of(sources.begin(), sources.end(), [&](int s) { return set.has(s); });
      if (reads || i == graph_.first_source()) found.push_back(i);
    }
    return found;
  }

  double crossing(const LayerSet& set) const {
    double bytes = 0;
    for (int i = 0; i < graph_.size(); ++i) {
      if (!set.has(i)) continue;
      const std::vector<int>& readers = graph_.readers(i);
      const bool crosses = std::any_of(readers.begin(), readers.end(), [&](int r) { return !set.has(r); });
      if (crosses) bytes += graph_.layer(i).activation;
    }
    return bytes;
  }

  std::vector<int> maximal(const LayerSet& set) const {
    std::vector<int> found;
    for (int i = 0; i < graph_.size(); ++i) {
      const std::vector<int>& readers = graph_.readers(i);
      if (set.has(i) && std::none_of(readers.begin(), readers.end(), [&](int r) { return set.has(r); })) {
        found.push_back(i);
      }
    }
    return found;
  }

  double released_crossing(const LayerSet& set) const {
    LayerSet counted = none();
    for (const int m : maximal(set)) {
      counted.insert(m);
      counted.insert(shared_[index(m)]);
    }
    double bytes = 0;
    for (int i = 0; i < graph_.size(); ++i) bytes += counted.has(i) ? graph_.layer(i).activation : 0;
    return bytes;
  }

  // For each layer, those that it needs and that any layer reads which it does not need.
  void find_shared() {
    for (int i = 0; i < graph_.size(); ++i) {
      LayerSet set = none();
      const LayerSet& needed = needs_[index(i)];
      for (int s = 0; s < i; ++s) {
        if (!needed.has(s)) continue;
        const std::vector<int>& readers = graph_.readers(s);
        if (std::any_of(readers.begin(), readers.end(), [&](int r) { return !needed.has(r); })) set.insert(s);
      }
      shared_.push_back(std::move(set));
    }
  }

  const LayerGraph& graph_;
  const CutSet::Kind kind_;
  std::vector<LayerSet> needs_, shared_;
};

struct Held {
  Cut cut;
  LayerSet set;
};

// Cuts by their number of layers, each once.
using Level = std::map<LayerSet, Cut>;

// The `width` cuts of a level that the fewest bytes cross; all where width is 0.
std::vector<Held> narrowed(const Level& level, size_t width) {
  std::vector<Held> result;
  for (const auto& [set, cut] : level) result.push_back({cut, set});
  std::stable_sort(result.begin(), result.end(),
                   [](const Held& a, const Held& b) { return a.cut.crossing < b.cut.crossing; });
  if (width > 0 && result.size() > width) result.erase(result.begin() + static_cast<std::ptrdiff_t>(width), result.end());
  return result;
}

// Cuts of ever more layers, `width` of each number (0: all). Empty if they are more than `most`.
std::vector<Held> grow(const Growth& growth, size_t width, size_t most) {
  std::vector<Held> held;
  std::map<int, Level> levels;
  levels[0].emplace(growth.none(), Cut());
  for (auto level = levels.begin(); level != levels.end(); level = levels.erase(level)) {
    for (Held& item : narrowed(level->second, width)) {
      for (const int layer : growth.available(item.set)) {
        LayerSet set = growth.with(item.set, layer);
        const Cut cut = growth.measured(set);
        levels[cut.layers].emplace(std::move(set), cut);
      }
      held.push_back(std::move(item));
      if (held.size() > most) return {};
    }
  }
  return held;
}

// Of a chain of cuts, the first, the last and about `most` in between: of those that lie
// near each other the one that the fewest bytes cross.
std::vector<Held> thinned(std::vector<Held> chain, const Cut& all, size_t most) {
  // Where a cut lies, from 0 to 3: by each of what the layers take and hold.
  const auto position = [&all](const Cut& cut) {
    const auto part = [](double value, double total) { return total > 0 ? value / total : 0; };
    return part(cut.seconds, all.seconds) + part(cut.parameters, all.parameters) +
           part(cut.activations, all.activations);
  };
  std::vector<Held> result{chain.front()};
  double bucket = -1;
  for (size_t c = 1; c + 1 < chain.size(); ++c) {
    const double at = std::floor(position(chain[c].cut) / 3 * static_cast<double>(most));
    if (at != bucket) {
      result.push_back(std::move(chain[c]));
    } else if (chain[c].cut.crossing < result.back().cut.crossing) {
      result.back() = std::move(chain[c]);
    }
    bucket = at;
  }
  result.push_back(std::move(chain.back()));
  return result;
}

}  // namespace

CutSet::CutSet(const LayerGraph& graph, Kind kind, size_t most) {
  const Growth growth(graph, kind);
  std::vector<Held> held = grow(growth, 0, most);
  complete_ = !held.empty();
  if (!complete_) {
    const size_t levels = static_cast<size_t>(graph.size()) + 1, width = std::max<size_t>(1, most / levels);
    held = grow(growth, width, width * levels);
    if (levels > most) held = thinned(std::move(held), growth.measured(growth.all()), most);
  }
  // Layers that no other needs and that do not grow from the first source belong to the end.
  held.back().set = growth.all();
  held.back().cut = growth.measured(held.back().set);
  held.back().cut.crossing = 0;
  for (Held& item : held) {
    cuts_.push_back(item.cut);
    sets_.push_back(std::move(item.set));
  }
  find_blocks(growth.none(), growth.all());
}

void CutSet::find_blocks(const LayerSet& none, const LayerSet& all) {
  std::vector<bool> alone(cuts_.size(), true);
  LayerSet smaller = none, larger = all;  // the union of the cuts before, the intersection of those behind
  for (size_t c = 0; c < cuts_.size(); ++c) {
    alone[c] = smaller.within(sets_[c]);
    smaller.insert(sets_[c]);
  }
  for (size_t c = cuts_.size(); c-- > 0;) {
    alone[c] = alone[c] && sets_[c].within(larger);
    larger.keep(sets_[c]);
  }
  int block = 0;
  for (size_t c = 0; c < cuts_.size(); ++c) block_.push_back(block += alone[c] ? 1 : 0);
}

}  // namespace soybean
