// Exchanges in the parallel graph.
//
// In an exchange (tiling/conversion.h) every device that wants a region of a
// tensor takes its pieces from the devices that hold them. As nodes of MXNet:
//
//   on the source     a tile that is wanted whole is used as it is. Pieces of
//                     one that lie side by side are outputs of _split_v2, one
//                     dim after the other: the gradient of a slice is a tile of
//                     zeros around its piece, and there would be one for each.
//                     A single piece, and pieces that overlap or leave gaps
//                     (the borders of a halo), are slices.
//   on the receiver   the pieces of each term are joined along the grid that
//                     they form, the last dim first; the terms of a sum are
//                     added, pair by pair, or stacked for their maximum. One
//                     piece that is all is copied.
//
// Every edge between two devices carries one piece, once.
#ifndef SOYBEAN_LOWER_EXCHANGE_H_
#define SOYBEAN_LOWER_EXCHANGE_H_

#include <string>
#include <vector>

#include "lower/parallel_graph.h"
#include "tiling/tiling.h"

namespace soybean {

constexpr Entry kAbsent{-1, 0};

// The tiles of one tensor, by device; kAbsent where a device holds none.
using Tiles = std::vector<Entry>;

// What each device holds of a tensor tiled so; of no use for one that holds nothing.
std::vector<Region> device_regions(const Mesh& mesh, const Tiling& tiling, const Shape& shape);

// Appends the nodes of an exchange: the tiles that hold `wanted`, by device, for
// the devices that hold something in `to`. `tiles` are tiled as `from`; all new
// nodes are called `name` and more. `joined_by`: as of Rule, for partial results.
Tiles exchange(const Mesh& mesh, const Shape& shape, const Tiling& from, const Tiling& to,
               const std::vector<Region>& wanted, const Tiles& tiles, const std::string& name,
               const std::string& joined_by, ParallelGraph* graph);

// Part of a tile that holds `held`, on the tile's device; the tile itself where
// the part is all of it.
Entry sliced(Entry tile, const Region& held, const Region& part, const std::string& name,
             ParallelGraph* graph);

}  // namespace soybean

#endif  // SOYBEAN_LOWER_EXCHANGE_H_
