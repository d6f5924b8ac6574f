// Operators that permute the dims of a tensor.
#include <algorithm>
#include <numeric>
#include <utility>

#include "rules/attributes.h"
#include "rules/families.h"
#include "rules/rule_builder.h"

namespace soybean {
namespace {

// Output dim i is input dim order[i].
Rule permutation_rule(const OperatorView& op, const std::vector<size_t>& order) {
  RuleBuilder rule(op);
  const Dims dims = rule.dim_factors(op.inputs[0].shape);
  Dims out;
  for (size_t d : order) out.push_back(dims[d]);
  return rule.input(dims).output(out).build();
}

std::vector<size_t> identity_order(size_t rank) {
  std::vector<size_t> order(rank);
  std::iota(order.begin(), order.end(), size_t{0});
  return order;
}

// Without axes the dims are reversed.
Rule transpose_rule(const OperatorView& op) {
  AttributeReader attrs(op.node.attrs);
  const auto axes = attrs.optional_integers("axes");
  if (attrs.failed() || !has_operands(op, 1, 1)) return Rule();
  const size_t rank = op.inputs[0].shape.size();
  std::vector<size_t> order = identity_order(rank);
  if (!axes || axes->empty()) {
    std::reverse(order.begin(), order.end());
    return permutation_rule(op, order);
  }
  if (axes->size() != rank || !axis_indices(*axes, rank)) return Rule();
  for (size_t d = 0; d < rank; ++d) order[d] = *axis_index((*axes)[d], rank);
  return permutation_rule(op, order);
}

Rule swap_axis_rule(const OperatorView& op) {
  AttributeReader attrs(op.node.attrs);
  const int64_t dim1 = attrs.integer("dim1", 0);
  const int64_t dim2 = attrs.integer("dim2", 0);
  if (attrs.failed() || !has_operands(op, 1, 1)) return Rule();
  const size_t rank = op.inputs[0].shape.size();
  const auto first = axis_index(dim1, rank);
  const auto second = axis_index(dim2, rank);
  if (!first || !second) return Rule();
  std::vector<size_t> order = identity_order(rank);
  std::swap(order[*first], order[*second]);
  return permutation_rule(op, order);
}

// Each source dim goes to its destination; the others keep their order.
Rule move_axis_rule(const OperatorView& op) {
  AttributeReader attrs(op.node.attrs);
  const Integers source = attrs.integers("source");
  const Integers destination = attrs.integers("destination");
  if (attrs.failed() || !has_operands(op, 1, 1)) return Rule();
  const size_t rank = op.inputs[0].shape.size();
  const auto moved = axis_indices(source, rank);
  const auto targets = axis_indices(destination, rank);
  if (!moved || !targets || source.size() != destination.size()) return Rule();
  std::vector<size_t> order(rank);
  for (size_t i = 0; i < source.size(); ++i) {
    order[*axis_index(destination[i], rank)] = *axis_index(source[i], rank);
  }
  size_t next = 0;  // the next input dim that is not moved
  for (size_t d = 0; d < rank; ++d) {
    if (targets->count(d) > 0) continue;
    while (moved->count(next) > 0) ++next;
    order[d] = next++;
  }
  return permutation_rule(op, order);
}

}  // namespace

void register_permutation_rules(RuleRegistry* registry) {
  (*registry)["transpose"] = transpose_rule;
  (*registry)["_np_transpose"] = transpose_rule;
  (*registry)["SwapAxis"] = swap_axis_rule;
  (*registry)["_np_moveaxis"] = move_axis_rule;
}

}  // namespace soybean
