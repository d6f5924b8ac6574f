#include "pipeline/layer_graph.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <queue>

#include "graph/graph.h"

namespace soybean {
namespace {

constexpr size_t kMostLayers = 20000;

size_t index(int i) { return static_cast<size_t>(i); }

double amount(const Json& json, const char* key, const std::string& what) {
  const double value = json.at(key, what).as_real(std::string(key) + " of " + what);
  if (!(value >= 0) || !std::isfinite(value)) {
    throw Error(std::string(key) + " of " + what + " is " + std::to_string(value) +
                ": it must be 0 or more, and finite");
  }
  return value;
}

Layer read_layer(const Json& json, int position) {
  const std::string where = "layer " + std::to_string(position);
  Layer layer;
  layer.name = json.at("name", where).as_string("name of " + where);
  const std::string what = "layer '" + layer.name + "'";
  layer.seconds = amount(json, "seconds", what);
  layer.activation = amount(json, "activation_bytes", what);
  layer.parameters = amount(json, "parameter_bytes", what);
  if (json.find("data_bytes") != nullptr) layer.data = amount(json, "data_bytes", what);
  layer.position = position;
  return layer;
}

std::vector<std::vector<int>> read_edges(const Json& json, const std::vector<Layer>& layers) {
  std::vector<std::vector<int>> readers(layers.size());
  for (const Json& item : json.at("edges", "the profile").as_array("edges of the profile")) {
    const Json::Array& ends = item.as_array("an edge of the profile");
    if (ends.size() != 2) throw Error("an edge of the profile has not two ends");
    int64_t at[2];
    for (int e = 0; e < 2; ++e) {
      at[e] = ends[static_cast<size_t>(e)].as_int("an edge of the profile");
      if (at[e] < 0 || at[e] >= static_cast<int64_t>(layers.size())) {
        throw Error("an edge of the profile names layer " + std::to_string(at[e]) + ": there are " +
                    std::to_string(layers.size()));
      }
    }
    readers[static_cast<size_t>(at[0])].push_back(static_cast<int>(at[1]));
  }
  for (std::vector<int>& list : readers) {
    std::sort(list.begin(), list.end());
    list.erase(std::unique(list.begin(), list.end()), list.end());
  }
  return readers;
}

// The positions in an order in which each layer follows what it reads; of those that
// may come next, the first of the profile.
std::vector<int> topological_order(const std::vector<Layer>& layers, const std::vector<std::vector<int>>& readers) {
  std::vector<int> missing(layers.size(), 0), order;
  for (const std::vector<int>& list : readers) {
    for (const int r : list) ++missing[index(r)];
  }
  std::priority_queue<int, std::vector<int>, std::greater<int>> ready;
  for (size_t i = 0; i < layers.size(); ++i) {
    if (missing[i] == 0) ready.push(static_cast<int>(i));
  }
  while (!ready.empty()) {
    const int i = ready.top();
    ready.pop();
    order.push_back(i);
    for (const int r : readers[index(i)]) {
      if (--missing[index(r)] == 0) ready.push(r);
    }
  }
  if (order.size() != layers.size()) {
    const auto at = std::find_if(missing.begin(), missing.end(), [](int n) { return n > 0; });
    throw Error("layer '" + layers[static_cast<size_t>(at - missing.begin())].name +
                "' needs its own output: the edges of a profile must not form a ring");
  }
  return order;
}

}  // namespace

LayerGraph::LayerGraph(const Json& json) {
  std::vector<Layer> layers;
  for (const Json& item : json.at("layers", "the profile").as_array("layers of the profile")) {
    layers.push_back(read_layer(item, static_cast<int>(layers.size())));
  }
  if (layers.empty()) throw Error("the profile has no layers: give one at least");
  if (layers.size() > kMostLayers) {
    throw Error("the profile has " + std::to_string(layers.size()) + " layers: at most " +
                std::to_string(kMostLayers) + " are possible");
  }
  const std::vector<std::vector<int>> given = read_edges(json, layers);
  const std::vector<int> order = topological_order(layers, given);
  std::vector<int> place(layers.size());
  for (size_t i = 0; i < order.size(); ++i) place[index(order[i])] = static_cast<int>(i);
  readers_.resize(layers.size());
  sources_.resize(layers.size());
  for (size_t i = 0; i < order.size(); ++i) {
    layers_.push_back(layers[index(order[i])]);
    for (const int r : given[index(order[i])]) {
      readers_[i].push_back(place[index(r)]);
      sources_[index(place[index(r)])].push_back(static_cast<int>(i));
    }
    std::sort(readers_[i].begin(), readers_[i].end());
  }
  for (size_t i = 0; i < layers.size(); ++i) {
    if (sources_[index(place[i])].empty()) {
      first_source_ = place[i];
      break;
    }
  }
  check_totals();
}

void LayerGraph::check_totals() const {
  double seconds = 0, bytes = 0;
  for (const Layer& layer : layers_) {
    seconds += layer.seconds;
    bytes += layer.activation + layer.parameters + layer.data;
  }
  // Beyond these, sums and their products with counts of devices could overflow.
  if (seconds > 1e15 || bytes > 1e24) {
    throw Error("the layers of the profile take " + std::to_string(seconds) + " s and " + std::to_string(bytes) +
                " bytes: at most 1e15 s and 1e24 bytes are possible");
  }
}

LayerSet LayerGraph::needs(int i) const {
  LayerSet set(layers_.size());
  set.insert(i);
  for (int k = i; k >= 0; --k) {  // what a layer needs stands before it
    if (!set.has(k)) continue;
    for (const int s : sources_[index(k)]) set.insert(s);
  }
  return set;
}

}  // namespace soybean
