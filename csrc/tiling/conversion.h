// Conversions: turning one tiling of a tensor into another.
//
// A conversion is a sequence of *steps*. A step changes the choice of one cut,
// by an exchange among the p devices that differ in that cut's digit only:
//
//   split d    -> replicated  all-gather        (p-1) A M bytes
//   split d    -> split d'    all-to-all        about A M (p-1)/p
//   split d    -> owner       gather            A M minus the owner's part
//   replicated -> split, owner   local          0
//   owner      -> replicated  broadcast         (p-1) A M
//   owner      -> split d     scatter           A M minus the owner's part
//   partial    -> split d     reduce-scatter    (p-1) A M
//   partial    -> replicated  all-reduce        p (p-1) A M
//   partial    -> owner       reduce            (p-1) A M
//
// for a tensor of A bytes of which M copies exist over the other cuts
// (SoyBean's one-cut conversion costs, for p = 2). A step that splits or joins
// dim d is possible only where the cut's blocks are neighbours: when no earlier
// cut splits d (see tiling.h).
//
// The backward pass sends the gradient of each transfer the other way, so a
// step costs the same bytes again when the tensor has a gradient.
#ifndef SOYBEAN_TILING_CONVERSION_H_
#define SOYBEAN_TILING_CONVERSION_H_

#include <map>
#include <vector>

#include "tiling/tiling.h"

namespace soybean {

struct Step {
  int cut;
  Choice from, to;
};

// What a step or a plan costs. Compared by bytes, then by messages.
struct Cost {
  int64_t bytes = 0;     // over all devices, one direction
  int64_t messages = 0;  // transfers between two devices
};
inline Cost operator+(Cost a, Cost b) { return {a.bytes + b.bytes, a.messages + b.messages}; }
inline Cost operator*(Cost a, int64_t n) { return {a.bytes * n, a.messages * n}; }
inline bool operator<(Cost a, Cost b) {
  return a.bytes != b.bytes ? a.bytes < b.bytes : a.messages < b.messages;
}
inline bool operator==(Cost a, Cost b) { return a.bytes == b.bytes && a.messages == b.messages; }

// Large enough for no plan to reach, small enough for hundreds to be added.
constexpr Cost kImpossible{int64_t{1} << 54, 0};
inline bool is_impossible(Cost c) { return c.bytes >= kImpossible.bytes; }

// The cost of a step out of `tiling` (whose choice at step.cut is step.from).
Cost step_cost(const Mesh& mesh, const TensorType& type, const Tiling& tiling, const Step& step);

// The cheapest conversions of one tensor type, found by Dijkstra's algorithm
// over the tilings that use only the given choices (and kReplicated).
class ConversionGraph {
 public:
  ConversionGraph(const Mesh& mesh, const TensorType& type, const std::vector<Choice>& choices);

  // The cheapest way from one tiling to another; kImpossible when `from` or
  // `to` uses a choice that was not given, or does not fit the shape.
  Cost cost(const Tiling& from, const Tiling& to);
  std::vector<Step> route(const Tiling& from, const Tiling& to);

 private:
  struct Source {
    std::vector<Cost> cost;     // by state
    std::vector<int> previous;  // the state before, or -1
  };
  int state_of(const Tiling& tiling) const;  // -1 when it is not one of ours
  Tiling tiling_of(int state) const;
  const Source& from(int state);
  std::vector<std::pair<int, Step>> neighbours(int state, const Tiling& tiling) const;

  const Mesh& mesh_;
  TensorType type_;
  std::vector<Choice> choices_;
  int states_;
  std::map<int, Source> sources_;
};

}  // namespace soybean

#endif  // SOYBEAN_TILING_CONVERSION_H_
