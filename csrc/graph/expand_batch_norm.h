// Writes BatchNorm out as the primitive operators that it stands for.
//
// On one device BatchNorm takes its mean and variance over the whole batch. A
// fused BatchNorm on a part of the batch would take them over its part: another
// result. Written out, the sums over the batch are reductions like any other,
// which the search may cut and the lowering completes across devices.
//
//   mean  = mean(x)             over all but the channels, by pooling and a small mean
//   d     = x - value(mean)     var = mean(d^2)
//   scale = gamma * rsqrt(var + eps)
//   beta' = beta - value(scale) * (mean - value(mean))
//   out   = d * scale + beta'
//
// value() stops gradients: what d owes to the mean reaches it through beta', whose
// value is beta, in a tensor of one element per channel; and var does not depend on
// the mean to first order. So no full-sized gradient is reduced by broadcasting
// operators, whose reductions are slow in MXNet.
//
// With soybean_mx's own operators (csrc/kernels/batch_norm.h) it is
//
//   sums           = sum(x), sum(x^2)     in double precision, of doubles in more
//   factor, offset = batch_norm_factors(sums, gamma, beta)
//   out            = batch_norm_shift(x, factor, offset)
//
// The last runs as MXNet's BatchNorm with a mean of 0 and a variance of 1: a scale and a
// shift by channel which keeps oneDNN's layout and nothing but x for the backward pass.
//
// So are BatchNorm_v1, SyncBatchNorm, and BatchNormWithReLU, which an Activation follows.
// Outside of training, and with use_global_stats, BatchNorm stays as it is.
#ifndef SOYBEAN_GRAPH_EXPAND_BATCH_NORM_H_
#define SOYBEAN_GRAPH_EXPAND_BATCH_NORM_H_

#include <string>
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

// Whether it is one of MXNet's operators that normalise by statistics of the batch.
bool is_batch_norm(const std::string& op);

ExpandedGraph expand_batch_norm(const SerialProgram& program);

}  // namespace soybean

#endif  // SOYBEAN_GRAPH_EXPAND_BATCH_NORM_H_
