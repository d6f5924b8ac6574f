// Writes BatchNorm out as the primitive operators that it stands for.
//
// On one device BatchNorm takes its mean and variance over the whole batch. A
// fused BatchNorm on a part of the batch would take them over its part: another
// result. Written out, the sums over the batch are reductions like any other,
// which the search may cut and the lowering completes across devices.
//
//   training:  mean = mean(x), d = x - mean, var = mean(d^2)
//   otherwise: mean and var are the moving statistics, d = x - mean
//   out = d * (gamma * rsqrt(var + eps)) + beta
#ifndef SOYBEAN_GRAPH_EXPAND_BATCH_NORM_H_
#define SOYBEAN_GRAPH_EXPAND_BATCH_NORM_H_

#include <vector>

#include "graph/read_graph.h"

namespace soybean {

// A batch statistic, which an auxiliary variable follows after each backward
// pass: variable = momentum * variable + (1 - momentum) * value.
struct Statistic {
  Entry value;
  int variable;  // node index
  double momentum;
};

struct ExpandedGraph {
  Graph graph;
  std::vector<Statistic> statistics;
  bool training;
};

ExpandedGraph expand_batch_norm(const SerialProgram& program);

}  // namespace soybean

#endif  // SOYBEAN_GRAPH_EXPAND_BATCH_NORM_H_
