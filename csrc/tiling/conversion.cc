#include "tiling/conversion.h"

#include <algorithm>
#include <numeric>
#include <set>

#include "tiling/counts.h"

namespace soybean {
namespace {

// The blocks into which `tiling` divides a dim, and the cuts that tell them apart.
struct Blocks {
  std::vector<int> cuts;  // the one that divides first at the front
  std::vector<Range> ranges;

  Blocks(const Mesh& mesh, const Tiling& tiling, int dim, int64_t extent)
      : cuts(tiling.cuts_of(dim)), ranges(divided(mesh, cuts, extent)) {}
};

// The partial cuts that end, whose terms are added.
std::vector<int> ending_sums(const Tiling& from, const Tiling& to) {
  std::vector<int> cuts;
  for (size_t i = 0; i < from.size(); ++i) {
    if (from[i] == kPartial && to[i] != kPartial) cuts.push_back(static_cast<int>(i));
  }
  return cuts;
}

// The device that a receiver takes from, but for the cuts that split or sum.
int nearest_holder(const Mesh& mesh, const Tiling& from, int device) {
  for (int cut = 0; cut < mesh.cut_count(); ++cut) {
    if (from[static_cast<size_t>(cut)] == kOwner) device = mesh.with_digit(device, cut, 0);
  }
  return device;
}

int64_t term_count(const Mesh& mesh, const std::vector<int>& cuts) {
  int64_t n = 1;
  for (const int cut : cuts) n *= mesh.parts(cut);
  return n;
}

// A dim as an exchange sees it: the blocks before, and for every device the range that
// it has before and afterwards.
struct ExchangedDim {
  Blocks before;
  std::vector<int> cuts_after;
  int64_t extent;

  ExchangedDim(const Mesh& mesh, const Tiling& from, const Tiling& to, int dim, int64_t extent)
      : before(mesh, from, dim, extent), cuts_after(to.cuts_of(dim)), extent(extent) {}

  Range held(const Mesh& mesh, int device) const { return device_range(mesh, before.cuts, extent, device); }
  Range wanted(const Mesh& mesh, int device) const { return device_range(mesh, cuts_after, extent, device); }

  // The blocks that a range meets.
  int64_t blocks(const Range& wanted) const {
    if (wanted.length() == 0) return 0;
    const auto ends_before = [](const Range& block, int64_t at) { return block.end <= at; };
    const auto& all = before.ranges;
    const auto first = std::lower_bound(all.begin(), all.end(), wanted.begin, ends_before);
    const auto last = std::lower_bound(first, all.end(), wanted.end - 1, ends_before);
    return last - first + 1;
  }
};

}  // namespace

Cost exchange_cost(const Mesh& mesh, const TensorType& type, const Tiling& from, const Tiling& to) {
  std::vector<ExchangedDim> dims;
  for (size_t d = 0; d < type.shape.size(); ++d) dims.emplace_back(mesh, from, to, static_cast<int>(d), type.shape[d]);
  const int64_t terms = term_count(mesh, ending_sums(from, to));
  Cost cost;
  for (int device = 0; device < mesh.devices(); ++device) {
    if (!holds(mesh, to, device)) continue;
    int64_t wanted = 1, own = 1, pieces = 1;
    for (const ExchangedDim& dim : dims) {
      const Range range = dim.wanted(mesh, device);
      wanted *= range.length();
      own *= overlap(range, dim.held(mesh, device));
      pieces *= dim.blocks(range);
    }
    if (!holds(mesh, from, device)) own = 0;
    cost.bytes += (terms * wanted - own) * type.itemsize;
    cost.messages += terms * pieces - (own > 0 ? 1 : 0);
  }
  return cost;
}

Assembly assembly(const Mesh& mesh, const Shape& shape, const Tiling& from, const Region& wanted,
                  const Tiling& to, int device) {
  struct Part {
    Range range;
    std::vector<std::pair<int, int>> digits;  // (cut, digit) of its holders
  };
  std::vector<std::vector<Part>> parts(shape.size());
  Assembly out;
  size_t pieces = 1;
  for (size_t d = 0; d < shape.size(); ++d) {
    const Blocks blocks(mesh, from, static_cast<int>(d), shape[d]);
    const Range range{wanted.begin[d], wanted.end[d]};
    for (size_t b = 0; b < blocks.ranges.size(); ++b) {
      if (overlap(blocks.ranges[b], range) == 0) continue;
      Part part{{std::max(range.begin, blocks.ranges[b].begin),
                 std::min(range.end, blocks.ranges[b].end)}, {}};
      size_t rest = b;
      for (size_t i = blocks.cuts.size(); i-- > 0;) {
        const int p = mesh.parts(blocks.cuts[i]);
        part.digits.emplace_back(blocks.cuts[i], static_cast<int>(rest % static_cast<size_t>(p)));
        rest /= static_cast<size_t>(p);
      }
      parts[d].push_back(std::move(part));
    }
    out.grid.push_back(static_cast<int64_t>(parts[d].size()));
    pieces *= parts[d].size();
  }

  const std::vector<int> sums = ending_sums(from, to);
  const int64_t terms = term_count(mesh, sums);
  for (int64_t term = 0; term < terms; ++term) {
    int holder = nearest_holder(mesh, from, device);
    int64_t rest = term;
    for (size_t i = sums.size(); i-- > 0; rest /= mesh.parts(sums[i])) {
      holder = mesh.with_digit(holder, sums[i], static_cast<int>(rest % mesh.parts(sums[i])));
    }
    std::vector<Piece> row;
    for (size_t n = 0; n < pieces; ++n) {
      Piece piece{holder, {Shape(shape.size()), Shape(shape.size())}};
      size_t index = n;
      for (size_t d = shape.size(); d-- > 0; index /= parts[d].size()) {
        const Part& part = parts[d][index % parts[d].size()];
        piece.region.begin[d] = part.range.begin;
        piece.region.end[d] = part.range.end;
        for (const auto& [cut, digit] : part.digits) {
          piece.source = mesh.with_digit(piece.source, cut, digit);
        }
      }
      row.push_back(std::move(piece));
    }
    out.terms.push_back(std::move(row));
  }
  return out;
}

namespace {

// The exchanges of one way to convert, and whether every stage has room.
class Route {
 public:
  Route(const Mesh& mesh, const TensorType& type, const Tiling& from)
      : mesh_(mesh), type_(type), at_(from) {}

  const Tiling& at() const { return at_; }
  bool possible() const { return possible_; }
  const Conversion& result() const { return result_; }

  void go(const Tiling& next) {
    if (next == at_) return;
    possible_ = possible_ && fits(mesh_, next, type_.shape);
    if (!possible_) return;
    result_.cost = result_.cost + exchange_cost(mesh_, type_, at_, next);
    result_.stages.push_back(next);
    at_ = next;
  }

 private:
  const Mesh& mesh_;
  const TensorType& type_;
  Tiling at_;
  Conversion result_;
  bool possible_ = true;
};

// The target with the cuts that are to be gathered still where they are: split
// as now, inside of the target's own splits, or held by the owner.
Tiling before_gathers(const Tiling& now, const Tiling& to) {
  std::vector<int> choices = to.choices(), order = to.levels();
  const int inside = static_cast<int>(to.size());
  for (size_t i = 0; i < to.size(); ++i) {
    if (to[i] != kReplicated) continue;
    choices[i] = now[i];
    order[i] = inside + now.level(i);
  }
  return Tiling(std::move(choices), order);
}

// The cuts with this choice in `from`, in the order in which `to` divides by them.
std::vector<int> in_target_order(const Tiling& from, const Tiling& to, Choice choice) {
  std::vector<int> cuts = from.cuts_of(choice);
  std::sort(cuts.begin(), cuts.end(), [&to](int a, int b) {
    const int la = to.level(static_cast<size_t>(a)), lb = to.level(static_cast<size_t>(b));
    return la != lb ? la < lb : a > b;
  });
  return cuts;
}

// What is open in a conversion: the dim onto which sums are reduced that end up
// replicated (or kOwner: one group adds them up, kReplicated: every group does), whether
// copies that stay are cut down onto it before, too, and whether copies are gathered
// one cut at a time.
struct Way {
  Choice via;
  bool all_copies, stepwise;
};

Route reduced(const Mesh& mesh, const TensorType& type, const Tiling& from, const Tiling& to,
              const Way& way) {
  Route route(mesh, type, from);
  if (!from.has(kPartial)) return route;
  Tiling sliced = from;
  for (const int cut : in_target_order(from, to, kReplicated)) {
    const Choice choice = to[static_cast<size_t>(cut)];
    const Tiling next = sliced.with(cut, choice == kReplicated && way.all_copies ? way.via : choice);
    sliced = fits(mesh, next, type.shape) ? next : sliced;
  }
  route.go(sliced);
  for (const int cut : in_target_order(from, to, kPartial)) {
    const size_t i = static_cast<size_t>(cut);
    const Tiling next = route.at().with(cut, to[i] == kReplicated ? way.via : to[i]);
    // Without room on `via` the sum is added up by every device.
    route.go(fits(mesh, next, type.shape) ? next : route.at().with(cut, kReplicated));
  }
  return route;
}

// Gathers one cut at a time: a split is taken off where it is innermost.
void gather(const Mesh& mesh, const Tiling& to, Route* route) {
  route->go(before_gathers(route->at(), to));
  for (bool gathered = true; gathered;) {
    gathered = false;
    for (int cut = 0; cut < mesh.cut_count() && !gathered; ++cut) {
      const size_t i = static_cast<size_t>(cut);
      const Tiling& at = route->at();
      if (at[i] == to[i]) continue;
      const bool innermost = at[i] < 0 || at.cuts_of(at[i]).back() == cut;
      if (!innermost) continue;
      route->go(at.with(cut, kReplicated));
      gathered = route->possible();
    }
  }
}

// Cuts copies down, reduces sums, exchanges, gathers.
Route route_of(const Mesh& mesh, const TensorType& type, const Tiling& from, const Tiling& to,
               const Way& way) {
  Route route = reduced(mesh, type, from, to, way);
  if (way.stepwise) gather(mesh, to, &route);
  route.go(to);
  return route;
}

// Up to this many cuts every tiling without sums is tried as a stage on the way.
constexpr int kThoroughCuts = 3;

// Calls `visit` with every tiling without sums that leaves each device something: every
// choice at every cut, the cuts of a dim in every order.
template <typename Visit>
void for_each_stage(const Mesh& mesh, const Shape& shape, const Visit& visit) {
  const size_t cuts = static_cast<size_t>(mesh.cut_count());
  std::vector<int> choices(cuts, kOwner), order(cuts);
  const Choice last = static_cast<Choice>(shape.size()) - 1;
  for (bool more = true; more;) {
    std::iota(order.begin(), order.end(), 0);
    if (fits(mesh, Tiling(choices), shape)) {
      std::set<Tiling> seen;  // orders differ only among the cuts of one dim
      do {
        const Tiling stage(choices, order);
        if (seen.insert(stage).second) visit(stage);
      } while (std::next_permutation(order.begin(), order.end()));
    }
    more = false;
    for (size_t i = 0; i < cuts && !more; ++i) {
      more = choices[i] < last;
      choices[i] = more ? choices[i] + 1 : kOwner;
    }
  }
}

std::vector<Way> ways(const Tiling& from, const Tiling& to, size_t rank) {
  std::vector<Way> out;
  if (from.has(kPartial) && to.has(kReplicated)) {
    for (size_t d = 0; d <= rank; ++d) {
      const Choice via = d < rank ? static_cast<Choice>(d) : kOwner;
      for (const bool all_copies : {false, true}) {
        out.push_back({via, all_copies, true});
        out.push_back({via, all_copies, false});
      }
    }
  }
  out.push_back({kReplicated, false, true});
  out.push_back({kReplicated, false, false});
  return out;
}

}  // namespace

Conversion conversion(const Mesh& mesh, const TensorType& type, const Tiling& from,
                      const Tiling& to) {
  if (from == to) return {};
  Conversion best;
  bool found = false;
  const auto consider = [&](const Route& route) {
    if (!route.possible() || (found && !(route.result().cost < best.cost))) return;
    best = route.result();
    found = true;
  };
  Route direct(mesh, type, from);
  direct.go(to);
  // Of equal ways, steps spread the work of a sum over the devices; where there is
  // little of it, they only wait for each other.
  constexpr int64_t kLittle = 1 << 16;
  if (byte_count(type) <= kLittle) consider(direct);
  for (const Way& way : ways(from, to, type.shape.size())) {
    consider(route_of(mesh, type, from, to, way));
  }
  consider(direct);
  const auto at_bound = [&] {
    const size_t rank = type.shape.size();
    return found && best.cost.bytes <=
           conversion_bound(mesh, type, Counts(mesh, from, rank), Counts(mesh, to, rank)).bytes;
  };
  if (from.has(kPartial) && mesh.cut_count() <= kThoroughCuts && !at_bound()) {
    for_each_stage(mesh, type.shape, [&](const Tiling& stage) {
      Route route(mesh, type, from);
      route.go(stage);
      if (found && route.result().cost.bytes >= best.cost.bytes) return;
      route.go(to);
      if (found && route.result().cost.bytes >= best.cost.bytes) return;
      consider(route);
    });
  }
  if (!found) {
    throw Error("internal error: no conversion of a tensor of shape " + shape_text(type.shape) +
                " from " + tiling_text(from) + " to " + tiling_text(to));
  }
  return best;
}

}  // namespace soybean
