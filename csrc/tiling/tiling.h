// Devices, cuts and tilings.
//
// The devices are divided by cuts: cut i divides every group of devices into
// p_i equal groups (p_i prime), cut 0 first. A device is known by its digits
// (g_0, ..., g_{k-1}), g_i in 0..p_i-1, g_0 the most significant.
//
// A *tiling* gives, for each cut, what becomes of a tensor: split on a dim,
// replicated, held by the first group only (owner), or a partial sum.
//
// Where several cuts split the same dim, one divides first: its parts are the
// outermost blocks of the dim, and the next cut divides each of them. The order
// is part of the tiling, as *levels*: level 0 divides first. A cut can be taken
// off a dim, or put onto it, at little cost where it is the innermost, so that
// the levels decide what a conversion moves (tiling/conversion.h). Parts differ
// by one element at most.
#ifndef SOYBEAN_TILING_TILING_H_
#define SOYBEAN_TILING_TILING_H_

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "graph/graph.h"

namespace soybean {

class Mesh {
 public:
  // The prime factors of `devices`, ascending. Throws Error outside 1..4096.
  explicit Mesh(int64_t devices);
  // These cuts, each prime. `levels`: for each cut, the level of the machine that
  // it crosses. Cuts of equal size are alike on one level, or, where `any_level`, on all.
  explicit Mesh(std::vector<int> cuts, std::vector<int> levels = {}, bool any_level = false);

  int devices() const { return devices_; }
  int cut_count() const { return static_cast<int>(cuts_.size()); }
  int parts(int cut) const { return cuts_[static_cast<size_t>(cut)]; }
  int level(int cut) const { return levels_[static_cast<size_t>(cut)]; }
  int digit(int device, int cut) const {
    return device / stride_[static_cast<size_t>(cut)] % parts(cut);
  }
  // The device whose digits are those of `device`, but for `digit` at `cut`.
  int with_digit(int device, int cut, int digit) const {
    return device + (digit - this->digit(device, cut)) * stride_[static_cast<size_t>(cut)];
  }
  // Cuts that may be exchanged for each other. Each class lists its cuts, ascending.
  const std::vector<std::vector<int>>& classes() const { return classes_; }
  // The same cuts, alike on one level only.
  Mesh by_level() const { return Mesh(cuts_, levels_); }
  int class_of(int cut) const { return class_of_[static_cast<size_t>(cut)]; }

 private:
  void count(bool any_level);

  int devices_ = 1;
  std::vector<int> cuts_, levels_, stride_;
  std::vector<std::vector<int>> classes_;
  std::vector<int> class_of_;
};

// What a cut does to a tensor: a dim (0, 1, ...) that it splits, or one of these.
using Choice = int;
constexpr Choice kReplicated = -1;
constexpr Choice kOwner = -2;
constexpr Choice kPartial = -3;

// The most cuts that 4096 devices can need.
constexpr size_t kMaxCuts = 12;

// One choice per cut, and the order in which the cuts with the same choice
// divide. A tiling of a tensor chooses dims, an operator's cuts choose factors.
// Held in place, as a search makes many.
class Division {
 public:
  Division() = default;
  // The usual order: the last cut divides first.
  Division(const std::vector<int>& choices);  // NOLINT: a list of choices is a division
  // `levels`: by cut; only their order among cuts with the same choice matters.
  Division(const std::vector<int>& choices, const std::vector<int>& levels);

  size_t size() const { return size_; }
  int operator[](size_t cut) const { return choices_[cut]; }
  // How many cuts with the same choice divide before this one; 0 unless it divides.
  int level(size_t cut) const { return levels_[cut]; }
  std::vector<int> choices() const { return {begin(), end()}; }
  std::vector<int> levels() const { return {levels_.begin(), levels_.begin() + size_}; }
  const int8_t* begin() const { return choices_.data(); }
  const int8_t* end() const { return choices_.data() + size_; }
  bool has(int choice) const;
  // The cuts with this choice, the one that divides first at the front.
  std::vector<int> cuts_of(int choice) const;
  // Whether the cuts with the same choice as `cut` divide in the usual order.
  bool is_usual(size_t cut) const;
  // This division with another choice for one cut, which divides last.
  Division with(int cut, int choice) const;
  // This division with another choice for each cut, in the same order: the choice at
  // `i` becomes choices[i].
  Division with_choices(const std::vector<int>& choices) const;

  friend bool operator==(const Division& a, const Division& b) {
    return a.size_ == b.size_ && a.choices_ == b.choices_ && a.levels_ == b.levels_;
  }
  friend bool operator!=(const Division& a, const Division& b) { return !(a == b); }
  friend bool operator<(const Division& a, const Division& b) {
    return a.choices_ != b.choices_ ? a.choices_ < b.choices_ : a.levels_ < b.levels_;
  }

 private:
  void set(const std::vector<int>& choices);
  void rank(const int* order);

  uint8_t size_ = 0;
  std::array<int8_t, kMaxCuts> choices_{}, levels_{};  // zero behind the last cut
};

using Tiling = Division;

std::string choice_text(Choice choice);                       // "split 0", "replicated", ...
Choice parse_choice(const std::string& text, const std::string& what);

// The choices as texts, "split 0/1" with the level where the order is not the usual one.
std::vector<std::string> tiling_texts(const Tiling& tiling);
Tiling parse_tiling(const std::vector<std::string>& texts, const std::string& what);
std::string tiling_text(const Tiling& tiling);  // "(split 0, replicated)"

// Takes "/1" off the end of `text`; -1 when there is none.
int take_level(std::string* text);

// A range of each dim: begin[d] <= i < end[d].
struct Region {
  Shape begin, end;
  Shape shape() const;
  int64_t elements() const { return element_count(shape()); }
};

struct Range {
  int64_t begin, end;
  int64_t length() const { return end > begin ? end - begin : 0; }
};

// Part g of p of a range, as even as possible, longer parts first.
Range part_of(Range whole, int p, int g);

int64_t overlap(const Range& a, const Range& b);  // the length that both have

// The ranges into which cuts divide 0..extent-1, the cut that divides first at the
// front, and the one of them that is a device's.
std::vector<Range> divided(const Mesh& mesh, const std::vector<int>& cuts, int64_t extent);
Range device_range(const Mesh& mesh, const std::vector<int>& cuts, int64_t extent, int device);

// The range of 0..extent-1 that the cuts with choice == value leave to a device.
Range device_range(const Mesh& mesh, const Division& division, int value, int64_t extent,
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
