// The layers of a profile: what each takes and what it needs.
#ifndef SOYBEAN_PIPELINE_LAYER_GRAPH_H_
#define SOYBEAN_PIPELINE_LAYER_GRAPH_H_

#include <cstdint>
#include <string>
#include <vector>

#include "graph/json.h"

namespace soybean {

struct Layer {
  std::string name;
  double seconds = 0;     // forward and backward, of one minibatch on one device
  double activation = 0;  // bytes of its outputs
  double data = 0;        // bytes of what it alone is fed
  double parameters = 0;  // bytes
  int position = 0;       // in the profile
};

// A set of layers by their index in LayerGraph::layers().
class LayerSet {
 public:
  explicit LayerSet(size_t layers) : words_((layers + 63) / 64, 0) {}

  bool has(int i) const { return (words_[word(i)] >> (i & 63)) & 1; }
  void insert(int i) { words_[word(i)] |= uint64_t{1} << (i & 63); }
  void insert(const LayerSet& other) {
    for (size_t w = 0; w < words_.size(); ++w) words_[w] |= other.words_[w];
  }
  void keep(const LayerSet& other) {
    for (size_t w = 0; w < words_.size(); ++w) words_[w] &= other.words_[w];
  }
  bool within(const LayerSet& other) const {
    for (size_t w = 0; w < words_.size(); ++w) {
      if (words_[w] & ~other.words_[w]) return false;
    }
    return true;
  }
  bool operator==(const LayerSet& other) const { return words_ == other.words_; }
  bool operator<(const LayerSet& other) const { return words_ < other.words_; }

 private:
  static size_t word(int i) { return static_cast<size_t>(i) >> 6; }
  std::vector<uint64_t> words_;
};

// Layers in a topological order, each after all that it reads.
class LayerGraph {
 public:
  // {"layers": [{"name", "seconds", "activation_bytes", "parameter_bytes", "data_bytes"}],
  //  "edges": [[from, to]]}, edges by position in `layers`; data_bytes may be left out.
  // Throws Error.
  explicit LayerGraph(const Json& json);

  int size() const { return static_cast<int>(layers_.size()); }
  const Layer& layer(int i) const { return layers_[static_cast<size_t>(i)]; }
  // Without repetition, ascending.
  const std::vector<int>& readers(int i) const { return readers_[static_cast<size_t>(i)]; }
  const std::vector<int>& sources(int i) const { return sources_[static_cast<size_t>(i)]; }
  // The layer that needs no other and comes first in the profile.
  int first_source() const { return first_source_; }
  // A layer and all that it needs, directly or not.
  LayerSet needs(int i) const;

 private:
  void check_totals() const;

  std::vector<Layer> layers_;
  std::vector<std::vector<int>> readers_, sources_;
  int first_source_ = 0;
};

}  // namespace soybean

#endif  // SOYBEAN_PIPELINE_LAYER_GRAPH_H_
