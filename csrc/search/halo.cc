#include "search/halo.h"

#include <algorithm>
#include <vector>

namespace soybean {
namespace {

// The rows of the input that are taken to make the rows `out`; `held` are at hand.
Range needed_rows(const Window& w, const Range& out, const Range& held, int64_t extent) {
  int64_t end = std::min(extent, (out.end - 1) * w.stride - w.pad + w.reach());
  if (held.begin < end) end = std::max(end, held.end);
  // A last window that the padding does not complete (round_up) still needs room.
  const int64_t begin = std::min(out.begin * w.stride - w.pad, end + 2 * w.pad - w.reach());
  return {begin > 0 ? begin - begin % w.stride : 0, end};
}

// Sums over the parts of one dim.
struct DimSums {
  int64_t needed = 0, held = 0;    // rows, and those of them that are at hand
  int64_t pieces = 0, at_hand = 0;  // parts that they come from, and those at hand
};

DimSums dim_sums(const std::vector<Range>& held, const std::vector<Range>& needed) {
  DimSums sums;
  for (size_t i = 0; i < held.size(); ++i) {
    sums.needed += needed[i].length();
    sums.held += overlap(needed[i], held[i]);
    sums.at_hand += overlap(needed[i], held[i]) > 0 ? 1 : 0;
    for (const Range& part : held) sums.pieces += overlap(needed[i], part) > 0 ? 1 : 0;
  }
  return sums;
}

}  // namespace

int halo_ways(const Program& program, int node) {
  for (const Window& w : program.rules[static_cast<size_t>(node)].windows) {
    if (program.requires_grad(program.graph().node(node).inputs[w.input])) return 2;
  }
  return 1;
}

Halos::Halos(const Program& program, const Mesh& mesh, int node, const OperatorCuts& cuts)
    : program_(program),
      mesh_(mesh),
      node_(node),
      cuts_(cuts),
      rule_(program.rules[static_cast<size_t>(node)]) {}

const Window* Halos::window_of(size_t input, size_t dim) const {
  for (const Window& w : rule_.windows) {
    if (w.input == input && w.dim == dim && cuts_.has(w.factor)) return &w;
  }
  return nullptr;
}

const Shape& Halos::input_shape(size_t input) const {
  return program_.graph().type(program_.graph().node(node_).inputs[input]).shape;
}

bool Halos::has(size_t input) const {
  return std::any_of(rule_.windows.begin(), rule_.windows.end(), [&](const Window& w) {
    return w.input == input && cuts_.has(w.factor);
  });
}

Region Halos::needed(size_t input, int device) const {
  const Shape& shape = input_shape(input);
  Region region = device_region(mesh_, input_tiling(rule_, input, cuts_), shape, device);
  for (size_t d = 0; d < shape.size(); ++d) {
    const Window* w = window_of(input, d);
    if (w == nullptr) continue;
    const int64_t size = rule_.factors[static_cast<size_t>(w->factor)].size;
    const Range out = device_range(mesh_, cuts_, w->factor, size, device);
    const Range rows = needed_rows(*w, out, {region.begin[d], region.end[d]}, shape[d]);
    region.begin[d] = rows.begin;
    region.end[d] = rows.end;
  }
  return region;
}

Region Halos::made(size_t output, int device) const {
  const Shape& shape = program_.graph().node(node_).outputs[output].shape;
  Region region = device_region(mesh_, output_tiling(rule_, output, cuts_), shape, device);
  for (const Window& w : rule_.windows) {
    if (!cuts_.has(w.factor)) continue;
    const std::vector<int>& dims = rule_.outputs[output].dims;
    const size_t d = static_cast<size_t>(std::find(dims.begin(), dims.end(), w.factor) - dims.begin());
    const Region rows = needed(w.input, device);
    region.begin[d] = rows.begin[w.dim] / w.stride;
    region.end[d] = region.begin[d] + w.output_extent(rows.end[w.dim] - rows.begin[w.dim]);
  }
  return region;
}

// Every cut divides one dim at most, so that the sum over the devices of a product
// over the dims is the product of the dims' own sums.
Cost Halos::input_cost(size_t input) const {
  const Shape& shape = input_shape(input);
  const Tiling tiling = input_tiling(rule_, input, cuts_);
  int64_t copies = 1;
  for (int cut = 0; cut < mesh_.cut_count(); ++cut) {
    if (tiling[static_cast<size_t>(cut)] == kReplicated) copies *= mesh_.parts(cut);
  }
  DimSums all{copies, copies, copies, copies};
  for (size_t d = 0; d < shape.size(); ++d) {
    const std::vector<Range> held = divided(mesh_, tiling.cuts_of(static_cast<int>(d)), shape[d]);
    std::vector<Range> needed = held;
    if (const Window* w = window_of(input, d)) {
      const int64_t size = rule_.factors[static_cast<size_t>(w->factor)].size;
      const std::vector<Range> out = divided(mesh_, cuts_.cuts_of(w->factor), size);
      for (size_t i = 0; i < held.size(); ++i) needed[i] = needed_rows(*w, out[i], held[i], shape[d]);
    }
    const DimSums sums = dim_sums(held, needed);
    all.needed *= sums.needed;
    all.held *= sums.held;
    all.pieces *= sums.pieces;
    all.at_hand *= sums.at_hand;
  }
  const int itemsize = program_.graph().type(program_.graph().node(node_).inputs[input]).itemsize;
  return {(all.needed - all.held) * itemsize, all.pieces - all.at_hand};
}

Cost Halos::cost() const {
  Cost total;
  for (size_t k = 0; k < rule_.inputs.size(); ++k) {
    if (has(k)) total = total + input_cost(k);
  }
  return total;
}

}  // namespace soybean
