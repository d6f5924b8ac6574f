// Operators in which the place of an element along two dims counts against each other
// (diagonals, triangles): both are whole, every other dim is a factor.
#include "rules/attributes.h"
#include "rules/families.h"
#include "rules/rule_builder.h"

namespace soybean {
namespace {

// The dims of the operand without the two along which the diagonal runs.
Dims without(const Dims& dims, const DimSet& gone) {
  Dims rest;
  for (size_t d = 0; d < dims.size(); ++d) {
    if (gone.count(d) == 0) rest.push_back(dims[d]);
  }
  return rest;
}

std::optional<DimSet> two_axes(const OperatorView& op) {
  AttributeReader attrs(op.node.attrs);
  const Integers axes = {attrs.integer("axis1", 0), attrs.integer("axis2", 1)};
  if (attrs.failed() || !has_operands(op, 1, 1)) return std::nullopt;
  return axis_indices(axes, op.inputs[0].shape.size());
}

// diag, diagonal: the diagonal is the last dim of the output. Of a vector a matrix is made,
// in which every element has its place.
Rule diagonal_rule(const OperatorView& op) {
  const auto axes = two_axes(op);
  if (!axes) return Rule();
  RuleBuilder rule(op);
  const Dims dims = rule.dim_factors(op.inputs[0].shape, *axes);
  Dims out = without(dims, *axes);
  out.push_back(kWhole);
  return rule.input(dims).output(out).build();
}

Rule trace_rule(const OperatorView& op) {
  const auto axes = two_axes(op);
  if (!axes) return Rule();
  RuleBuilder rule(op);
  const Dims dims = rule.dim_factors(op.inputs[0].shape, *axes);
  return rule.input(dims).output(without(dims, *axes)).build();
}

// Matrices in the last two dims. Of a vector a matrix is made.
Rule triangle_rule(const OperatorView& op) {
  if (!has_operands(op, 1, 1)) return Rule();
  const size_t rank = op.inputs[0].shape.size();
  if (rank < 2) return Rule();
  RuleBuilder rule(op);
  const Dims dims = rule.dim_factors(op.inputs[0].shape, {rank - 2, rank - 1});
  return rule.input(dims).output(dims).build();
}

}  // namespace

void register_diagonal_rules(RuleRegistry* registry) {
  for (const char* name : {"diag", "_np_diagonal"}) (*registry)[name] = diagonal_rule;
  (*registry)["_np_trace"] = trace_rule;
  (*registry)["_npi_tril"] = triangle_rule;
}

}  // namespace soybean
