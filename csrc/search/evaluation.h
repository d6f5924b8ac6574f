// What a plan does, worked out from the plan alone: its conversions, what they
// move, how long a step takes on a machine, and what a device must hold.
#ifndef SOYBEAN_SEARCH_EVALUATION_H_
#define SOYBEAN_SEARCH_EVALUATION_H_

#include <string>
#include <vector>

#include "search/memory.h"
#include "search/prices.h"

namespace soybean {

// One tensor turned from one tiling into another.
struct PlannedConversion {
  Entry tensor;
  Tiling from, to;
  int user = -1;      // the operator that needs it so, or -1
  int result = -1;    // the result that is left so, or -1; neither: on its way to rest
  Cost forward;
  int ways = 1;       // 2 where the gradient goes back
  double seconds = 0;  // both ways, on the machine's links
};

struct Evaluation {
  std::vector<PlannedConversion> conversions;
  int64_t halo_bytes = 0;  // of convolutions and poolings cut along the image, both ways
  int64_t statistics_bytes = 0;  // of normalizations cut along what they normalize, both ways
  int64_t forward_bytes = 0, backward_bytes = 0, messages = 0;
  double communication_seconds = 0, compute_seconds = 0;  // with a machine
  Memory memory;  // of the device that holds most
  int64_t bytes() const { return forward_bytes + backward_bytes; }
};

// What conversions move, each found once.
using KnownConversions = std::map<std::pair<std::pair<Shape, int>, std::pair<Tiling, Tiling>>, Cost>;

Evaluation evaluate(const Space& space, const Plan& plan, const Pricing& pricing, KnownConversions* known);

}  // namespace soybean

#endif  // SOYBEAN_SEARCH_EVALUATION_H_
