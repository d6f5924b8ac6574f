// Writes operators that take their extents from another tensor as those that state them.
//
// slice_like, broadcast_like, reshape_like, Crop and BilinearResize2D(mode="like") read
// nothing but the shape of their last operand, and all shapes are known. Without that
// operand nothing has to be brought to where the operator runs, and no gradient of zeros
// goes back. MXNet 1.9.1's gradient of BilinearResize2D for it, moreover, is memory that
// nobody wrote where the image keeps its size, and is written beyond the tensor's end where
// that has fewer samples than the image.
//
// An operand that nothing else uses stays, so that no operator loses its last user, and is
// given no gradient.
#ifndef SOYBEAN_GRAPH_STATE_EXTENTS_H_
#define SOYBEAN_GRAPH_STATE_EXTENTS_H_

#include "graph/read_graph.h"

namespace soybean {

SerialProgram state_extents(SerialProgram program);

}  // namespace soybean

#endif  // SOYBEAN_GRAPH_STATE_EXTENTS_H_
