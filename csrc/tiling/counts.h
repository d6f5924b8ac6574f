// Tilings up to the exchange of equal cuts.
//
// Cuts of one class (equal parts on one level of the machine) may be exchanged
// for each other: what a conversion has to move depends on how many cuts of each
// class make each choice, not on which ones. With three choices and k equal cuts
// that leaves (k+1)(k+2)/2 tilings in place of 3^k and their orders.
//
// conversion_bound() is what a conversion between two such *counts* moves when the
// cuts and levels on both sides fit together: as many cuts as possible make the
// same choice on both sides, and each dim's divisions are nested. No conversion
// between tilings with these counts moves less, whatever the cuts and the levels;
// is_aligned() tells the pairs of tilings that move just this where all extents
// divide evenly.
#ifndef SOYBEAN_TILING_COUNTS_H_
#define SOYBEAN_TILING_COUNTS_H_

#include <vector>

#include "tiling/conversion.h"

namespace soybean {

// How many cuts of each class make each choice.
class Counts {
 public:
  Counts(const Mesh& mesh, const Tiling& tiling, size_t rank);

  size_t rank() const { return rank_; }
  size_t classes() const { return per_class_.size() / (rank_ + 3); }
  int split(size_t c, size_t dim) const { return per_class_[c * (rank_ + 3) + 3 + dim]; }
  int owner(size_t c) const { return per_class_[c * (rank_ + 3)]; }
  int partial(size_t c) const { return per_class_[c * (rank_ + 3) + 1]; }
  int replicated(size_t c) const { return per_class_[c * (rank_ + 3) + 2]; }
  int& operator()(size_t c, size_t slot) { return per_class_[c * (rank_ + 3) + slot]; }
  int operator()(size_t c, size_t slot) const { return per_class_[c * (rank_ + 3) + slot]; }

  friend bool operator==(const Counts& a, const Counts& b) { return a.per_class_ == b.per_class_; }
  friend bool operator<(const Counts& a, const Counts& b) { return a.per_class_ < b.per_class_; }

 private:
  size_t rank_;
  std::vector<int> per_class_;  // owner, partial, replicated, then the dims
};

// A machine's figures, by level (index 0 the outermost): what an exchange over
// the level's links takes.
struct LinkLevel {
  double bandwidth = 0;  // bytes/s of one device, one direction
  double latency = 0;    // seconds of one exchange
};

// What a conversion moves at least, in bytes, over all devices, and how many
// messages it takes about.
Cost conversion_bound(const Mesh& mesh, const TensorType& type, const Counts& from,
                      const Counts& to);

// The time of a conversion in picoseconds (as Cost::bytes), its bytes as messages:
// class by class, partial sums are reduced from the innermost level outwards, splits
// exchanged, copies gathered from the outermost level inwards, each exchange
// `latency` + bytes per device / `bandwidth` of the level it crosses.
Cost conversion_time(const Mesh& mesh, const TensorType& type, const Counts& from,
                     const Counts& to, const std::vector<LinkLevel>& links);

// Whether conversion(from, to) moves conversion_bound() where extents divide
// evenly: for every dim one side's divisions continue the other's.
bool is_aligned(const Tiling& from, const Tiling& to, size_t rank);

// Whether every dim that one of the tilings splits divides evenly in both.
bool is_even(const Mesh& mesh, const Shape& shape, const Tiling& from, const Tiling& to);

// Both: conversion(from, to) is known to move conversion_bound().
inline bool is_at_bound(const Mesh& mesh, const Shape& shape, const Tiling& from, const Tiling& to) {
  return is_aligned(from, to, shape.size()) && is_even(mesh, shape, from, to);
}

}  // namespace soybean

#endif  // SOYBEAN_TILING_COUNTS_H_
