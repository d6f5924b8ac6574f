// Undoes what programs do to have one batch dim: samples and heads merged into one.
//
// Attention is often written as
//
//     reshape(x, (N, H, T, D) -> (N * H, T, D)), batch_dot, softmax, ..., and back
//
// A merged dim can be cut along its outer part alone: the elements of one head are
// spread all over it. So operators between the two reshapes are given the dims (N, H)
// instead of their product, wherever they mean the same with one dim more, and the
// reshapes are gone. Where an operator needs the merged tensor it is merged there.
//
// MXNet's interleaved attention operators merge N and H in their scores themselves.
// Those scores get the dims (N, H) here, too; the operator's rule says that MXNet has
// them as one (TensorRule::merged), and the lowering reshapes each device's part.
#ifndef SOYBEAN_RULES_MERGED_DIMS_H_
#define SOYBEAN_RULES_MERGED_DIMS_H_

#include "graph/read_graph.h"

namespace soybean {

SerialProgram separate_merged_dims(const SerialProgram& program);

}  // namespace soybean

#endif  // SOYBEAN_RULES_MERGED_DIMS_H_
