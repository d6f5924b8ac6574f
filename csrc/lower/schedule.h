// The order of the parallel graph: a list schedule of one training step.
//
// MXNet hands the operators of a step to its engine in an order, forward and then
// backward, and the lowering sets both: the forward one by control dependencies, the
// backward one by the order of the arguments, as the gradients are asked for in that
// order and each pulls in what it needs that is not there yet (depth first).
//
// A step is modelled as tasks: the operators forward, their gradients and the sums of
// gradients backward, and the copies between devices. A task takes its operations or its
// memory traffic, whichever is longer, and a fixed time to start it. A device runs one
// operator at a time: most share the temporary space of the device and run in the order in
// which they were handed over, the others in the order in which their operands arrive, as in
// MXNet's engine. A copy is run by the device that sends, among
// its operators on a CPU; beside them on a GPU, where it occupies the sending side of one
// device and the receiving side of the other.
#ifndef SOYBEAN_LOWER_SCHEDULE_H_
#define SOYBEAN_LOWER_SCHEDULE_H_

#include <vector>

#include "lower/parallel_graph.h"
#include "search/topology.h"

namespace soybean {

// Everything that sets MXNet's order.
struct Order {
  std::vector<int> nodes;      // those that are no variables
  std::vector<int> arguments;  // the variables
};

// A step in the model.
struct Simulation {
  double seconds = 0;
  std::vector<double> idle;  // seconds, by device
};

// When one task runs. What kind it is: "forward", "backward", "sum" (of gradients) or "copy".
struct Event {
  const char* kind;
  int node;    // what it belongs to; of a copy, what is copied or its gradient
  int device;  // of a copy, the one that sends
  int to;      // of a copy, the one that receives; else the same device
  double begin, end;
};

// The machine that a step runs on.
struct Hardware {
  Topology topology;
  bool copy_engines = false;  // whether copies run beside a device's operators
};

struct Schedule {
  Order order;
  Simulation scheduled, serial;
  // No order takes less: the longest chain of tasks, or what one device or one side of
  // its links has to do.
  double critical_path = 0;
};

// Layer by layer, all devices in step, as the nodes stand. Variables used last come first,
// so that the backward pass goes through the layers once, all devices in step.
Order serial_order(const ParallelGraph& graph);

// The devices that are assumed where nothing is known of them: GPUs, which copy while they
// compute, or one core of a CPU each.
Topology default_topology(int devices, bool copy_engines);

// Whether the schedule is searched for, or the serial order is kept.
enum class Ordering { kScheduled, kSerial };

// The order of the least simulated time among the list schedule's, and what goes forward as
// the list schedule and backward as the serial order or the other way round; the serial one
// where these save nothing worth it. Deterministic. Throws Error where the topology has fewer
// devices than the graph.
Schedule schedule(const ParallelGraph& graph, const Hardware& hardware, Ordering ordering);

// The step in an order, MXNet's backward pass found as MXNet does: the operators as they are
// handed over, and then the copies.
std::vector<Event> timeline(const ParallelGraph& graph, const Hardware& hardware, const Order& order);

// The tasks of the step themselves, to be played on any machine (docs/interface.md).
Json step_json(const ParallelGraph& graph, const Hardware& hardware, const Order& order);

// The same graph with its nodes in the order: the variables first, as arguments.
ParallelGraph ordered(const ParallelGraph& graph, const Order& order);

// As docs/interface.md specifies it.
Json schedule_json(const Schedule& schedule);
Json timeline_json(const ParallelGraph& graph, const std::vector<Event>& timeline);

}  // namespace soybean

#endif  // SOYBEAN_LOWER_SCHEDULE_H_
