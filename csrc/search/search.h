// The searches: a plan for a program, by the name of a strategy.
//
//   optimal    the plan that moves the fewest bytes: all cuts chosen at once,
//              by variable elimination over the operators and tensors
//   recursive  SoyBean's algorithm: the best first cut, then the best second
//              cut given the first, ...
//   data       every operator cut along the batch as far as that goes
//   model      no operator cut along the batch unless nothing else can be
//   random:N   any legal plan, drawn with seed N (for tests)
//
// data and model choose the best plan among those that they allow.
#ifndef SOYBEAN_SEARCH_SEARCH_H_
#define SOYBEAN_SEARCH_SEARCH_H_

#include <string>

#include "search/space.h"

namespace soybean {

struct SearchOptions {
  int64_t devices = 1;
  std::string strategy = "optimal";
  bool whole_boundary = false;
  std::map<std::string, Tiling> pins;
};

Plan search(const Program& program, const SearchOptions& options);

}  // namespace soybean

#endif  // SOYBEAN_SEARCH_SEARCH_H_
