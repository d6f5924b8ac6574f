// The parallel graph without communication, to measure what communication takes.
#ifndef SOYBEAN_LOWER_LOCAL_FILLS_H_
#define SOYBEAN_LOWER_LOCAL_FILLS_H_

#include "lower/parallel_graph.h"

namespace soybean {

// What `graph`, which went through with_local_sums, computes on each device, and
// nothing between devices; its results mean nothing. Where a tensor crossed,
//  - the receiving device copies a variable of its own of the same size instead,
//    with a gradient where the tensor has one: `fills` of the result;
//  - the tensor is a head, so that its device computes it still; where it has a
//    gradient, that is ones, made there. These heads follow the others, in the
//    order of the fills.
ParallelGraph with_local_fills(const ParallelGraph& graph);

}  // namespace soybean

#endif  // SOYBEAN_LOWER_LOCAL_FILLS_H_
