// Conversions: turning one tiling of a tensor into another.
//
// An *exchange* changes the choices of any number of cuts at once. Every device
// that holds something afterwards takes what it lacks from the nearest device
// that holds it; where a cut was a partial sum and is one no longer, it takes
// the terms of all groups and adds them. For tilings t and u of a tensor, an
// exchange moves
//
//   sum over devices D that hold u:  q |u(D)| - |t(D) and u(D)|
//
// bytes, where t(D) is the region that D holds (empty for none) and q the number
// of terms (the product of p over the partial cuts that end). For one cut of p
// these are the collectives, for a tensor of A bytes of which M copies exist
// over the other cuts (SoyBean's one-cut conversion costs, for p = 2):
//
//   split d    -> replicated  all-gather        (p-1) A M
//   split d    -> split d'    all-to-all        about A M (p-1)/p
//   split d    -> owner       gather            A M minus the owner's part
//   replicated -> split, owner   local          0
//   owner      -> replicated  broadcast         (p-1) A M
//   owner      -> split d     scatter           A M minus the owner's part
//   partial    -> split d     reduce-scatter    (p-1) A M
//   partial    -> replicated  all-reduce        p (p-1) A M
//   partial    -> owner       reduce            (p-1) A M
//
// A *conversion* is a few exchanges: copies are cut down, partial sums reduced onto
// splits, what is to be split otherwise is exchanged, and what is to be replicated is
// gathered.
// Without partial sums no way to convert moves fewer bytes than the one exchange,
// as every device receives exactly what it lacks; the division into steps of one
// cut costs no more bytes and fewer messages. With partial sums it pays to reduce
// them onto some tiling first, and what that should be depends on both sides: on
// three cuts or fewer all of them are tried, and no longer way moves less
// (tests/search/test_conversions.py).
//
// The backward pass sends the gradient of each transfer the other way, so a
// conversion costs the same bytes again when the tensor has a gradient.
#ifndef SOYBEAN_TILING_CONVERSION_H_
#define SOYBEAN_TILING_CONVERSION_H_

#include <vector>

#include "tiling/tiling.h"

namespace soybean {

// What a conversion or a plan costs. Compared by value (bytes, where nothing
// else is said), then by messages.
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

// What one exchange moves. `to` may be partial only where `from` is.
Cost exchange_cost(const Mesh& mesh, const TensorType& type, const Tiling& from, const Tiling& to);

// A piece of a tensor that an exchange brings to a device.
struct Piece {
  int source;     // the device that sends it, or the receiver itself
  Region region;  // within the tensor
};

// What `device` puts together in an exchange: for each term of the sum (one,
// where no partial sum ends), a grid of pieces that fill its region. The last
// dim varies fastest.
struct Assembly {
  std::vector<int64_t> grid;               // the number of pieces along each dim
  std::vector<std::vector<Piece>> terms;
};
Assembly assembly(const Mesh& mesh, const Shape& shape, const Tiling& from, const Region& wanted,
                  const Tiling& to, int device);

// The tilings that a conversion goes through, from the first exchange's result
// to `to` (none when from == to), and what it moves. Deterministic.
struct Conversion {
  std::vector<Tiling> stages;
  Cost cost;
};
Conversion conversion(const Mesh& mesh, const TensorType& type, const Tiling& from,
                      const Tiling& to);

}  // namespace soybean

#endif  // SOYBEAN_TILING_CONVERSION_H_
