// Gives a parameter that several operators take one copy for all of them to take.
//
// A parameter rests so that each element is held once, and each operator brings it to where
// it needs it on its own: an unrolled recurrent network would gather its weights at every
// position. Behind an identity the parameter is a tensor like any other, which may rest as its
// users need it. It is brought there once, and their gradients are added up before they go back.
#ifndef SOYBEAN_GRAPH_SHARE_PARAMETERS_H_
#define SOYBEAN_GRAPH_SHARE_PARAMETERS_H_

#include "graph/read_graph.h"

namespace soybean {

SerialProgram share_parameters(const SerialProgram& program);

// The node that makes a tensor, or the variable that it is an identity of.
const Node& original(const Graph& graph, Entry e);

}  // namespace soybean

#endif  // SOYBEAN_GRAPH_SHARE_PARAMETERS_H_
