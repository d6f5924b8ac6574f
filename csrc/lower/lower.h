// Lowering: a serial program and a plan -> the parallel graph.
//
// Every operator becomes one local operator on each device that its plan gives
// it, with attributes restated for the extents that the device has; every
// change of tiling becomes the slices, copies, joins and sums of its conversion,
// exchange by exchange (tiling/conversion.h, lower/exchange.h).
#ifndef SOYBEAN_LOWER_LOWER_H_
#define SOYBEAN_LOWER_LOWER_H_

#include "lower/parallel_graph.h"
#include "lower/schedule.h"
#include "search/plan.h"

namespace soybean {

ParallelGraph lower(const Program& program, const Plan& plan);

// The lowered program as docs/interface.md specifies it, its nodes in the schedule's order.
Json lowered_json(const Program& program, const ParallelGraph& graph, const Schedule& schedule);

}  // namespace soybean

#endif  // SOYBEAN_LOWER_LOWER_H_
