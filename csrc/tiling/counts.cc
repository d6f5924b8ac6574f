#include "tiling/counts.h"

#include <algorithm>
#include <cmath>

namespace soybean {
namespace {

constexpr size_t kOwnerSlot = 0, kPartialSlot = 1, kReplicatedSlot = 2, kSplitSlots = 3;

int64_t power(int64_t base, int exponent) {
  int64_t n = 1;
  for (; exponent > 0; --exponent) n *= base;
  return n;
}

int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

// What is open in reducing sums: which copies are cut down before (those that the
// target has too many of, those that it has another choice for, or all), and whether
// what ends up replicated is added up in parts or by the owner.
struct Way {
  enum { kSurplus, kWanted, kSplitAll, kOwnAll } copies;
  bool by_owner;
};
constexpr Way kWays[] = {{Way::kWanted, false},   {Way::kSurplus, false}, {Way::kSplitAll, false},
                         {Way::kOwnAll, false},   {Way::kWanted, true},   {Way::kSurplus, true},
                         {Way::kSplitAll, true},  {Way::kOwnAll, true}};

// The bounds of one tensor's conversions, with the mesh's classes at hand.
class Bound {
 public:
  Bound(const Mesh& mesh, const TensorType& type) : mesh_(mesh), type_(type) {}

  int p(size_t c) const { return mesh_.parts(mesh_.classes()[c][0]); }

  // The parts that the cuts of `slot` make together.
  int64_t parts(const Counts& t, size_t slot) const {
    int64_t n = 1;
    for (size_t c = 0; c < t.classes(); ++c) n *= power(p(c), t(c, slot));
    return n;
  }

  // Bytes that all devices hold together.
  int64_t held(const Counts& t) const {
    return byte_count(type_) * parts(t, kReplicatedSlot) * parts(t, kPartialSlot);
  }

  // Bytes that an exchange moves at least when every device takes what it lacks, of
  // each term of a sum.
  int64_t exchanged(const Counts& from, const Counts& to) const {
    return parts(from, kPartialSlot) * held(to) - std::min({held(to), held(from), kept(from, to)});
  }

  // Before a sum is reduced, copies are cut down: to the target's own splits and
  // owners, and then, if all are, to any.
  void cut_copies(const Counts& to, const Way& way, Counts* at) const {
    for (size_t c = 0; c < at->classes(); ++c) {
      int copies = at->replicated(c) - (way.copies == Way::kSurplus ? to.replicated(c) : 0);
      const auto cut = [&](size_t slot, int most) {
        int n = std::min(copies, most);
        if (slot >= kSplitSlots) n = std::min(n, room(*at, c, slot - kSplitSlots));
        if (n <= 0) return;
        (*at)(c, slot) += n;
        (*at)(c, kReplicatedSlot) -= n;
        copies -= n;
      };
      for (size_t slot = 0; slot < at->rank() + 3; ++slot) {
        if (slot == kReplicatedSlot || slot == kPartialSlot) continue;
        cut(slot, to(c, slot) - (*at)(c, slot));
      }
      for (size_t d = 0; d < at->rank() && way.copies == Way::kSplitAll; ++d) cut(kSplitSlots + d, copies);
      if (way.copies == Way::kOwnAll) cut(kOwnerSlot, copies);
    }
  }

  // Replaces each partial cut by the choice that the target makes of it: its own
  // splits and owners first, then any split with room, to be gathered.
  // Returns the bytes of the reduction.
  int64_t reduce(const Counts& to, const Way& way, Counts* at) const {
    int64_t bytes = 0;
    cut_copies(to, way, at);
    for (size_t c = at->classes(); c-- > 0;) {
      const int sums = at->partial(c);
      if (sums == 0) continue;
      int left = sums, reduced = 0;
      const auto fill = [&](size_t slot, int most) {
        const int n = std::min(left, most);
        if (n <= 0) return;
        (*at)(c, slot) += n;
        left -= n;
        reduced += n;
      };
      for (size_t d = 0; d < at->rank(); ++d) {
        fill(kSplitSlots + d, std::min(to.split(c, d) - at->split(c, d), room(*at, c, d)));
      }
      fill(kOwnerSlot, to.owner(c) - at->owner(c));
      for (size_t d = 0; d < at->rank() && !way.by_owner; ++d) fill(kSplitSlots + d, room(*at, c, d));
      fill(kOwnerSlot, left);  // no room: added up by one group, which sends it to the others
      (*at)(c, kPartialSlot) = 0;
      bytes += (power(p(c), sums) - 1) * held(*at);
    }
    return bytes;
  }

 private:
  // How many more cuts of class c have room on a dim.
  int room(const Counts& t, size_t c, size_t d) const {
    int64_t parts_now = parts(t, kSplitSlots + d);
    int n = 0;
    while (parts_now * p(c) <= type_.shape[d]) {
      parts_now *= p(c);
      ++n;
    }
    return n;
  }

  // Bytes that are in place already, at most.
  int64_t kept(const Counts& from, const Counts& to) const {
    int64_t holders = mesh_.devices(), even = type_.itemsize;
    for (size_t c = 0; c < from.classes(); ++c) {
      holders /= power(p(c), std::max(from.owner(c), to.owner(c)));
    }
    // What a dim contributes: on the average over the devices extent / finer, on no
    // device more than `most`. Several dims may have their long overlaps on the same
    // devices, so that only one counts with its average; and none where the owner
    // holds the tensor, which is the first group in every dim.
    struct Uneven {
      int64_t extent, finer, most;
    };
    std::vector<Uneven> uneven;
    for (size_t d = 0; d < from.rank(); ++d) {
      const int64_t extent = type_.shape[d];
      int64_t finer = 1;
      bool more_before = false, more_after = false;
      for (size_t c = 0; c < from.classes(); ++c) {
        finer *= power(p(c), std::max(from.split(c, d), to.split(c, d)));
        more_before = more_before || from.split(c, d) > to.split(c, d);
        more_after = more_after || from.split(c, d) < to.split(c, d);
      }
      const bool nested = !(more_before && more_after);
      if (nested && extent % finer == 0) {
        even *= extent / finer;
        continue;
      }
      const int64_t coarser = std::max(parts(from, kSplitSlots + d), parts(to, kSplitSlots + d));
      uneven.push_back({extent, finer, ceil_div(extent, nested ? finer : coarser)});
    }
    int64_t at_most = even * holders;
    for (const Uneven& u : uneven) at_most *= u.most;
    if (holders < mesh_.devices()) return at_most;
    int64_t least = at_most;
    for (const Uneven& u : uneven) {
      least = std::min(least, ceil_div(at_most / u.most * u.extent, u.finer));
    }
    return least;
  }

  const Mesh& mesh_;
  const TensorType& type_;
};

// The target with what is gathered last still split or owned as in `now`.
Counts before_gathers(const Counts& now, const Counts& to) {
  Counts out = to;
  for (size_t c = 0; c < to.classes(); ++c) {
    // Of the cuts that will be replicated, those that `now` has beyond the target.
    int gathered = to.replicated(c) - now.replicated(c);
    for (size_t slot = 0; slot < to.rank() + 3 && gathered > 0; ++slot) {
      if (slot == kReplicatedSlot || slot == kPartialSlot) continue;
      const int n = std::min(gathered, std::max(now(c, slot) - out(c, slot), 0));
      out(c, slot) += n;
      out(c, kReplicatedSlot) -= n;
      gathered -= n;
    }
  }
  return out;
}

bool has_sums(const Counts& t) {
  for (size_t c = 0; c < t.classes(); ++c) {
    if (t.partial(c) > 0) return true;
  }
  return false;
}

int rounds(int p, int cuts) { return cuts * (p - 1); }

}  // namespace

Counts::Counts(const Mesh& mesh, const Tiling& tiling, size_t rank)
    : rank_(rank), per_class_(mesh.classes().size() * (rank + 3), 0) {
  for (size_t i = 0; i < tiling.size(); ++i) {
    const size_t c = static_cast<size_t>(mesh.class_of(static_cast<int>(i)));
    const size_t slot = tiling[i] >= 0            ? kSplitSlots + static_cast<size_t>(tiling[i])
                        : tiling[i] == kOwner     ? kOwnerSlot
                        : tiling[i] == kPartial   ? kPartialSlot
                                                  : kReplicatedSlot;
    ++(*this)(c, slot);
  }
}

Cost conversion_bound(const Mesh& mesh, const TensorType& type, const Counts& from,
                      const Counts& to) {
  if (from == to) return {};
  const Bound bound(mesh, type);
  Counts at = from;
  Cost cost{bound.exchanged(from, to), 0};
  if (has_sums(from)) {
    for (const Way& way : kWays) {
      Counts reduced = from;
      int64_t bytes = bound.reduce(to, way, &reduced);
      bytes += bound.exchanged(reduced, to);
      if (bytes >= cost.bytes) continue;
      cost.bytes = bytes;
      at = reduced;
    }
  }
  // Every cut that changes is one pairwise exchange of all devices, about.
  if (cost.bytes == 0) return cost;
  for (size_t c = 0; c < from.classes(); ++c) {
    int changed = from.partial(c);
    for (size_t d = 0; d < from.rank(); ++d) changed += std::max(0, at.split(c, d) - to.split(c, d));
    changed += std::max(0, at.owner(c) - to.owner(c));
    cost.messages += static_cast<int64_t>(changed) * mesh.devices() * (bound.p(c) - 1);
  }
  return cost;
}

Cost conversion_time(const Mesh& mesh, const TensorType& type, const Counts& from,
                     const Counts& to, const std::vector<LinkLevel>& links) {
  if (from == to) return {};
  const Bound bound(mesh, type);
  double seconds = 0;
  int64_t moved = 0;
  const auto add = [&](size_t c, int64_t bytes, int cuts) {
    if (bytes <= 0) return;
    const LinkLevel& link = links[static_cast<size_t>(mesh.level(mesh.classes()[c][0]))];
    moved += bytes;
    seconds += link.latency * rounds(bound.p(c), std::max(cuts, 1)) +
               static_cast<double>(bytes) / mesh.devices() / link.bandwidth;
  };
  Counts at = from;
  // The reduction of class c alone: the other classes' sums wait.
  for (size_t c = at.classes(); c-- > 0;) {
    if (at.partial(c) == 0) continue;
    Counts reduced = at;
    for (size_t other = 0; other < at.classes(); ++other) {
      if (other != c) reduced(other, kPartialSlot) = 0;
    }
    bound.reduce(to, kWays[0], &reduced);
    for (size_t other = 0; other < at.classes(); ++other) {
      if (other != c) reduced(other, kPartialSlot) = at.partial(other);
    }
    const int sums = at.partial(c);
    at = reduced;
    add(c, (power(bound.p(c), sums) - 1) * bound.held(at), sums);
  }
  const auto exchange = [&](const Counts& target) {
    for (size_t c = 0; c < at.classes(); ++c) {
      Counts next = at;
      int cuts = 0;
      for (size_t slot = 0; slot < at.rank() + 3; ++slot) {
        cuts += std::max(0, at(c, slot) - target(c, slot));
        next(c, slot) = target(c, slot);
      }
      if (cuts == 0) continue;
      add(c, bound.exchanged(at, next), cuts);
      at = next;
    }
  };
  exchange(before_gathers(at, to));
  exchange(to);
  return {static_cast<int64_t>(std::llround(seconds * 1e12)), moved};
}

bool is_aligned(const Tiling& from, const Tiling& to, size_t rank) {
  // The owner's cuts are the same, or all of one side's are among the other's; sums
  // that meet an owner are left to conversion().
  bool more_before = false, more_after = false;
  for (size_t i = 0; i < from.size(); ++i) {
    more_before = more_before || (from[i] == kOwner && to[i] != kOwner);
    more_after = more_after || (from[i] != kOwner && to[i] == kOwner);
  }
  if (more_before && more_after) return false;
  if (from.has(kPartial) && (from.has(kOwner) || to.has(kOwner))) return false;
  // Where sums are reduced, what ends replicated had better take the place of a split
  // that moves.
  bool copied_sum = false, moved_split = false;
  for (size_t i = 0; i < from.size() && from.has(kPartial); ++i) {
    copied_sum = copied_sum || (from[i] < 0 && to[i] == kReplicated);
    moved_split = moved_split || (from[i] >= 0 && to[i] >= 0 && from[i] != to[i]);
  }
  if (copied_sum && moved_split) return false;
  for (size_t d = 0; d < rank; ++d) {
    const std::vector<int> before = from.cuts_of(static_cast<int>(d));
    const std::vector<int> after = to.cuts_of(static_cast<int>(d));
    const size_t shared = std::min(before.size(), after.size());
    if (!std::equal(before.begin(), before.begin() + static_cast<std::ptrdiff_t>(shared), after.begin())) {
      return false;
    }
    // Where sums are reduced, copies are cut down first: right inside of the present
    // splits, and the sums right inside of those.
    if (!from.has(kPartial)) continue;
    int stage = 0;
    for (size_t i = before.size(); i < after.size(); ++i) {
      const Choice was = from[static_cast<size_t>(after[i])];
      const int next = was == kReplicated ? 0 : was == kPartial ? 1 : 2;
      if (next < stage) return false;
      stage = next;
    }
    for (const int cut : after) {
      const Choice was = from[static_cast<size_t>(cut)];
      if (before.size() > after.size() && (was == kReplicated || was == kPartial)) return false;
    }
  }
  return true;
}

bool is_even(const Mesh& mesh, const Shape& shape, const Tiling& from, const Tiling& to) {
  for (size_t d = 0; d < shape.size(); ++d) {
    for (const Tiling* t : {&from, &to}) {
      int64_t parts = 1;
      for (size_t i = 0; i < t->size(); ++i) {
        if ((*t)[i] == static_cast<Choice>(d)) parts *= mesh.parts(static_cast<int>(i));
      }
      if (shape[d] % parts != 0) return false;
    }
  }
  return true;
}

}  // namespace soybean
