// Reads the serial graph from the request that docs/interface.md specifies.
#ifndef SOYBEAN_GRAPH_READ_GRAPH_H_
#define SOYBEAN_GRAPH_READ_GRAPH_H_

#include <string>

#include "graph/graph.h"

namespace soybean {

struct SerialProgram {
  Graph graph;
  bool training;       // operators act as in training (batch statistics, dropout)
  bool own_operators;  // MXNet has loaded soybean_mx's own (csrc/mxnet_operators.cc)
};

// Throws Error naming the node and the value that is wrong.
SerialProgram read_program(const std::string& request);

}  // namespace soybean

#endif  // SOYBEAN_GRAPH_READ_GRAPH_H_
