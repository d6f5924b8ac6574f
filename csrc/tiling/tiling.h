// Devices, cuts and tilings.
//
// The devices are divided by cuts: cut i divides every group of devices into
// p_i equal groups (p_i prime), cut 0 first. A device is known by its digits
// (g_0, ..., g_{k-1}), g_i in 0..p_i-1, g_0 the most significant.
//
// A *tiling* gives, for each cut, what becomes of a tensor: split on a dim,
// replicated, held by the first group only (owner), or a partial sum.
//
// Where several cuts split the same dim, the last cut divides first: its parts
// are the outermost blocks of the dim, those of cut 0 the innermost. So an
// all-gather that goes through the cuts in order 0, 1, ... (slowest link first,
// while the pieces are small) joins neighbouring blocks at every step, and so
// does a reduce-scatter in the opposite order. Parts differ by one at most.
#ifndef SOYBEAN_TILING_TILING_H_
#define SOYBEAN_TILING_TILING_H_

#include <cstdint>
#include <string>
#include <vector>

#include "graph/graph.h"

namespace soybean {

class Mesh {
 public:
  // The prime factors of `devices`, ascending. Throws Error outside 1..4096.
  explicit Mesh(int64_t devices);

  int devices() const { return devices_; }
  int cut_count() const { return static_cast<int>(cuts_.size()); }
  int parts(int cut) const { return cuts_[static_cast<size_t>(cut)]; }
  int digit(int device, int cut) const {
    return device / stride_[static_cast<size_t>(cut)] % parts(cut);
  }
  // The device whose digits are those of `device`, but for `digit` at `cut`.
  int with_digit(int device, int cut, int digit) const {
    return device + (digit - this->digit(device, cut)) * stride_[static_cast<size_t>(cut)];
  }

 private:
  int devices_;
  std::vector<int> cuts_;
  std::vector<int> stride_;
};

// What a cut does to a tensor: a dim (0, 1, ...) that it splits, or one of these.
using Choice = int;
constexpr Choice kReplicated = -1;
constexpr Choice kOwner = -2;
constexpr Choice kPartial = -3;

using Tiling = std::vector<Choice>;  // one Choice per cut

std::string choice_text(Choice choice);                       // "split 0", "replicated", ...
Choice parse_choice(const std::string& text, const std::string& what);

// A range of each dim: begin[d] <= i < end[d].
struct Region {
  Shape begin, end;
  Shape shape() const;
  int64_t elements() const { return element_count(shape()); }
};

struct Range {
  int64_t begin, end;
  int64_t length() const { return end - begin; }
};

// Part g of p of a range, as even as possible, longer parts first.
Range part_of(Range whole, int p, int g);

// The range of 0..extent-1 that the cuts with choice == value leave to a device.
Range device_range(const Mesh& mesh, const std::vector<int>& choices, int value, int64_t extent,
                   int device);

// Whether `device` holds anything of a tensor tiled so (not when it is outside
// the first group of an owner cut).
bool holds(const Mesh& mesh, const Tiling& tiling, int device);

// What `device` holds (all of it, for replicated and partial cuts).
Region device_region(const Mesh& mesh, const Tiling& tiling, const Shape& shape, int device);

// Whether every split leaves every device at least one element along its dim.
bool fits(const Mesh& mesh, const Tiling& tiling, const Shape& shape);

}  // namespace soybean

#endif  // SOYBEAN_TILING_TILING_H_
