// Operators written out as the primitive operators that they stand for.
//
// A softmax over a dim of which each group holds a part needs the maximum and the sum
// over all parts, a LayerNorm the mean and the variance. The fused operator cannot be
// given these; written out it can:
//
//   log_softmax:  m = max(x)    d = x - m    s = sum(exp(d))    out = d - log(s)
//
// where max and sum are reductions like any other, whose partial results are joined
// between devices (Rule::joined_by), and everything else is by element. Only an operator
// that a plan cuts along such a dim (Factor::statistic) is written out, when the plan is
// lowered (lower/write_out.h): where the dim is whole, the fused operator is faster.
//
// Half precision is computed in single, as sums of parts would be rounded each.
#ifndef SOYBEAN_RULES_WRITTEN_OUT_H_
#define SOYBEAN_RULES_WRITTEN_OUT_H_

#include <string>
#include <vector>

#include "rules/rule.h"

namespace soybean {

// Appends primitive operators of one output to a list of nodes.
class PrimitiveWriter {
 public:
  // `nodes` must outlive it. `name`: of the operator that is written out.
  PrimitiveWriter(const std::string& name, std::vector<Node>* nodes) : name_(name), nodes_(*nodes) {}

  const TensorType& type(Entry e) const {
    return nodes_[static_cast<size_t>(e.node)].outputs[static_cast<size_t>(e.index)];
  }

  // An operator called `what`, of a result of this shape, in the type of its first input.
  Entry add(const std::string& op, const std::string& what, Attributes attrs, std::vector<Entry> inputs, Shape shape);
  // The same, in the shape of the first input.
  Entry by_element(const std::string& op, const std::string& what, Attributes attrs, std::vector<Entry> inputs);
  // Over the dims, which stay with extent 1.
  Entry reduction(const std::string& op, const std::string& what, Entry x, const std::vector<size_t>& dims);
  Entry reshaped(const std::string& what, Entry x, const Shape& shape);
  // x in another precision, or x itself.
  Entry cast(const std::string& what, Entry x, int itemsize);

 private:
  const std::string name_;
  std::vector<Node>& nodes_;
};

// Writes the node, whose inputs are these entries; its only output. Throws Error for an
// operator that cannot be written out: one whose rule has no Factor::statistic.
Entry write_out(const Node& node, const std::vector<Entry>& inputs, PrimitiveWriter* writer);

// The precision in which an operator is written out for inputs of this one.
inline int written_itemsize(int itemsize) { return itemsize < 4 ? 4 : itemsize; }

}  // namespace soybean

#endif  // SOYBEAN_RULES_WRITTEN_OUT_H_
