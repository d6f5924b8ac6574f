// Halos: what the groups of an operator that is cut along a windowed dim need of
// each other's input (Window in rules/rule.h).
//
// A group that makes the rows [begin, end) of the output needs the rows
//
//   [begin*stride - pad, (end-1)*stride - pad + (kernel-1)*dilate + 1)
//
// of the input, as far as there are such rows. It takes a few more: from a multiple
// of the stride on, so that its windows stand where the whole operator's do; to the
// end of the rows that it holds, which need not be cut then; and no fewer than fill
// one window with the padding, as MXNet asks for. It runs the operator
// with the attributes as they are: the padding is right where the input ends, and
// what it makes of padding at a border between groups is cut away.
#ifndef SOYBEAN_SEARCH_HALO_H_
#define SOYBEAN_SEARCH_HALO_H_

#include "search/plan.h"
#include "tiling/conversion.h"

namespace soybean {

// The halos of one operator, cut in one way.
class Halos {
 public:
  // `program`, `mesh` and `cuts` must outlive it.
  Halos(const Program& program, const Mesh& mesh, int node, const OperatorCuts& cuts);

  // Whether an input goes through an exchange that brings the halo.
  bool has(size_t input) const;
  // What a device needs of an input.
  Region needed(size_t input, int device) const;
  // What a device makes of an output, as rows of the whole output: more than its
  // own part, and beyond the end of the output maybe.
  Region made(size_t output, int device) const;
  // What the exchanges move forward, over all devices.
  Cost cost() const;

 private:
  const Window* window_of(size_t input, size_t dim) const;
  const Shape& input_shape(size_t input) const;
  Cost input_cost(size_t input) const;

  const Program& program_;
  const Mesh& mesh_;
  const int node_;
  const OperatorCuts& cuts_;
  const Rule& rule_;
};

// How often a halo is moved: forward, and back where the input that the windows run
// over has a gradient. (The operator may have one without it: that of its weight.)
int halo_ways(const Program& program, int node);

inline Cost halo_cost(const Program& program, const Mesh& mesh, int node, const OperatorCuts& cuts) {
  return Halos(program, mesh, node, cuts).cost();
}
inline int64_t halo_bytes(const Program& program, const Mesh& mesh, int node,
                          const OperatorCuts& cuts) {
  return halo_cost(program, mesh, node, cuts).bytes;
}

}  // namespace soybean

#endif  // SOYBEAN_SEARCH_HALO_H_
