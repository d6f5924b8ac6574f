// The searches: a plan for a program, by the name of a strategy.
//
//   optimal    the plan that moves the fewest bytes, or takes the least time: all
//              cuts chosen at once (below)
//   recursive  SoyBean's algorithm: the best first cut, then the best second
//              cut given the first, ...
//   random:N   any legal plan, drawn with seed N (for tests)
// and those of baselines.h, which choose the best plan among those that they allow.
//
// The search has three steps.
//   1. Counts. Each operator's cuts and each tensor's tiling up to the exchange of
//      equal cuts, conversions at their bounds (tiling/counts.h): by elimination the
//      least sum, which no plan goes below.
//   2. Arrangements. With the counts fixed, which cuts make which choice and in which
//      order they divide: again by elimination. Where it meets the bound, as it does
//      unless sizes are uneven or the program's branches contradict each other, the
//      plan is proved the best.
//   3. Else, on few devices, all arrangements of all counts that the bound does not
//      rule out, at exact prices.
// A plan that is not proved carries its lower bound.
//
// Under a memory limit, bytes of memory get a price (a Lagrange multiplier), which is
// raised until the plan fits and lowered while it does.
#ifndef SOYBEAN_SEARCH_SEARCH_H_
#define SOYBEAN_SEARCH_SEARCH_H_

#include <optional>
#include <string>

#include "search/evaluation.h"
#include "search/topology.h"

namespace soybean {

struct SearchOptions {
  int64_t devices = 1;
  std::string strategy = "optimal";
  bool whole_boundary = false;
  std::vector<Pin> pins;
  std::optional<Topology> topology;
  bool time = false;             // the objective; else bytes
  int64_t memory_limit = 0;      // bytes per device; 0: none
  int optimizer_states = 0;
  bool memory_by_device = false;  // whether the report is to have every device's memory
  enum class Spatial { kAuto, kYes, kNo } spatial = Spatial::kAuto;
};

struct SearchResult {
  Plan plan;
  Evaluation evaluation;
  std::vector<Memory> memory_by_device;  // if asked for
  bool exact = false;          // proved to be the best
  bool limited = false;        // operators with very many choices kept a part of them, and
                               // the lower bound is for plans of these
  int64_t objective = 0;       // bytes, or picoseconds
  int64_t lower_bound = 0;     // of the objective
  int64_t lower_bound_bytes = 0;
  int width = 0;               // the most variables that a table of the search mentions
  bool spatial = false;        // whether image height and width were cut
};

// The devices of the options, divided.
Mesh mesh_of(const SearchOptions& options);
// What the options allow of the space.
SpaceOptions space_options(const Program& program, const SearchOptions& options);

SearchResult search(const Program& program, const SearchOptions& options);

}  // namespace soybean

#endif  // SOYBEAN_SEARCH_SEARCH_H_
