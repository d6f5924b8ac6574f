// Which tensors of a program a training step keeps from its forward pass until its
// backward pass. It depends on the program alone, not on how it is cut.
#ifndef SOYBEAN_SEARCH_KEPT_H_
#define SOYBEAN_SEARCH_KEPT_H_

#include <set>

#include "search/plan.h"

namespace soybean {

class KeptTensors {
 public:
  explicit KeptTensors(const Program& program);

  // Whether the memory that an operator writes this output to is kept. A tensor that
  // is another one under a new shape has no memory of its own.
  bool has_kept_memory(Entry e) const { return memory_.count(e) > 0; }
  // Whether the values are, so that a copy in another tiling is kept too.
  bool is_read_backward(Entry e) const { return read_.count(e) > 0; }

 private:
  std::set<Entry> memory_, read_;
};

}  // namespace soybean

#endif  // SOYBEAN_SEARCH_KEPT_H_
