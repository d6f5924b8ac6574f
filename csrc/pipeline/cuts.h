// Where a network may be cut into stages.
//
// A cut is a set of layers that holds with each layer all that it needs (an ideal of
// the graph); the layers between two cuts, one within the other, are a stage. A chain
// of n layers has n + 1 cuts. Branches multiply them: a block with branches of a and b
// layers has (a + 1)(b + 1), and a network of such blocks soon has too many.
//
// CutSet holds all cuts where these are no more than a bound, and says so
// (`complete`): a search over them is exact. Else it holds, for each number of
// layers, those `width` cuts that the fewest bytes cross, of the cuts that add one
// layer to one that is held for one layer less (a beam search): at most width *
// (n + 1) cuts, found in time width * n * branches * (n + edges). Each cut that is
// held lies in a chain of held cuts which grows by one layer at a time, so that
// stages can be balanced to within one layer. What may be lost are cuts that more
// bytes cross than others of the same number of layers, in branched blocks alone:
// cuts between blocks are the only ones of their number, and are always held. So no
// boundary need be dearer than the least of its block, and where compute
// decides, a chain of cuts gives a slowest stage of at most (total / devices + the
// slowest layer). A plan's lower bound says how far off it can be at most.
//
// Where there are more layers than the bound, of a chain of cuts about as many as the
// bound are held: of cuts between which there lie less than 3 / bound of all seconds,
// bytes of weights and of outputs, that which the fewest bytes cross.
#ifndef SOYBEAN_PIPELINE_CUTS_H_
#define SOYBEAN_PIPELINE_CUTS_H_

#include <vector>

#include "pipeline/layer_graph.h"

namespace soybean {

struct Cut {
  int layers = 0;         // how many lie before it
  double seconds = 0;     // of the layers before it
  double parameters = 0;  // bytes of the layers before it
  double activations = 0; // bytes of all outputs of the layers before it, and of their data
  double crossing = 0;    // bytes of those outputs that layers behind it read
};

class CutSet {
 public:
  // How the bytes that cross are counted, and which cuts there are.
  enum class Kind {
    // Every output that a layer behind the cut reads, once. All ideals.
    kExact,
    // As PipeDream's released optimizer: also the outputs of layers that a maximal layer
    // of the cut needs and that any layer reads which this one does not need, even if
    // the reader lies before the cut. Cuts grow from the first source by readers of what
    // they hold; other sources join with the first layer that needs them.
    kReleased,
  };

  // `most`: the bound on the number of cuts, give or take the first and the last.
  CutSet(const LayerGraph& graph, Kind kind, size_t most);

  // In ascending order of layers: the first is empty, the last holds all.
  size_t size() const { return cuts_.size(); }
  const Cut& operator[](size_t c) const { return cuts_[c]; }
  const LayerSet& layers(size_t c) const { return sets_[c]; }
  bool complete() const { return complete_; }
  // Whether cut a lies strictly within cut b: whether there is a stage between them.
  bool precedes(size_t a, size_t b) const {
    if (block_[a] != block_[b]) return block_[a] < block_[b];
    return cuts_[a].layers < cuts_[b].layers && sets_[a].within(sets_[b]);
  }

 private:
  void find_blocks(const LayerSet& none, const LayerSet& all);

  std::vector<Cut> cuts_;
  std::vector<LayerSet> sets_;
  // How many cuts that are comparable with all others lie within this one or are it.
  std::vector<int> block_;
  bool complete_ = true;
};

}  // namespace soybean

#endif  // SOYBEAN_PIPELINE_CUTS_H_
