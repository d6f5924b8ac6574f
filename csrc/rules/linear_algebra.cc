// Decompositions, inverses and solutions of matrices in the last two dims, each of which
// needs its whole matrix: the dims before, the batch, are factors. Where a matrix
// is applied to the columns (or rows) of another, those are for themselves, too.
#include <algorithm>

#include "rules/attributes.h"
#include "rules/families.h"
#include "rules/rule_builder.h"

namespace soybean {
namespace {

// Factors "n", "d1", ... for all but the last `own` dims of an operand; the dims of every
// other operand are made of the same ones.
class Batch {
 public:
  Batch(RuleBuilder* rule, const Shape& shape, size_t own) {
    const size_t count = shape.size() - std::min(own, shape.size());
    dims_ = rule->dim_factors(Shape(shape.begin(), shape.begin() + static_cast<std::ptrdiff_t>(count)));
  }

  // The batch, and behind it what an operand has of its own.
  Dims with(const Dims& own) const {
    Dims dims = dims_;
    dims.insert(dims.end(), own.begin(), own.end());
    return dims;
  }

  // The same with `own` whole dims. A number for each matrix is a vector of one where
  // there is one matrix, outside of NumPy's semantics.
  Dims with_whole(size_t own, const Shape& shape) const {
    const bool one_number = dims_.empty() && own == 0 && shape.size() == 1;
    return with(Dims(one_number ? 1 : own, kWhole));
  }

 private:
  Dims dims_;
};

// `in` dims of the operand and `outs` of the results belong to one matrix.
Rule by_matrix(const OperatorView& op, size_t in, const std::vector<size_t>& outs) {
  if (!has_operands(op, 1, outs.size()) || op.inputs[0].shape.size() < in) return Rule();
  RuleBuilder rule(op);
  const Batch batch(&rule, op.inputs[0].shape, in);
  rule.input(batch.with(Dims(in, kWhole)));
  for (size_t i = 0; i < outs.size(); ++i) rule.output(batch.with_whole(outs[i], op.outputs[i].shape));
  return rule.build();
}

Rule matrix_to_number(const OperatorView& op) { return by_matrix(op, 2, {0}); }
Rule matrix_to_numbers(const OperatorView& op) { return by_matrix(op, 2, {0, 0}); }
Rule matrix_to_vector(const OperatorView& op) { return by_matrix(op, 2, {1}); }
Rule vector_to_matrix(const OperatorView& op) { return by_matrix(op, 1, {2}); }
Rule matrix_to_matrix(const OperatorView& op) { return by_matrix(op, 2, {2}); }
Rule matrix_to_matrices(const OperatorView& op) { return by_matrix(op, 2, {2, 2}); }
Rule matrix_to_matrix_and_vector(const OperatorView& op) { return by_matrix(op, 2, {2, 1}); }
Rule matrix_to_vector_and_matrix(const OperatorView& op) { return by_matrix(op, 2, {1, 2}); }
Rule singular_values_rule(const OperatorView& op) { return by_matrix(op, 2, {2, 1, 2}); }

// pinv: one threshold for each matrix, or one for several.
Rule pseudo_inverse_rule(const OperatorView& op) {
  if (!has_operands(op, 2, 1) || op.inputs[0].shape.size() < 2) return Rule();
  RuleBuilder rule(op);
  const Shape& a = op.inputs[0].shape;
  const Shape& threshold = op.inputs[1].shape;
  const Batch batch(&rule, a, 2);
  const Dims dims = batch.with({});
  if (threshold.size() > dims.size()) return Rule();
  const size_t missing = dims.size() - threshold.size();
  Dims threshold_dims;
  for (size_t d = 0; d < threshold.size(); ++d) {
    threshold_dims.push_back(threshold[d] == a[missing + d] ? dims[missing + d] : kWhole);
  }
  rule.input(batch.with({kWhole, kWhole})).input(threshold_dims);
  return rule.output(batch.with({kWhole, kWhole})).build();
}

// a[..., i, i] b[..., i, m] -> out[..., i, m], or with rows in place of the columns
Rule applied_matrix(const OperatorView& op, bool from_right) {
  if (!has_operands(op, 2, 1)) return Rule();
  const size_t rank = op.inputs[0].shape.size();
  if (rank < 2 || op.inputs[1].shape.size() != rank) return Rule();
  RuleBuilder rule(op);
  const Batch batch(&rule, op.inputs[0].shape, 2);
  const int m = rule.factor("m", op.inputs[1].shape[from_right ? rank - 2 : rank - 1]);
  const Dims b = batch.with(from_right ? Dims{m, kWhole} : Dims{kWhole, m});
  return rule.input(batch.with({kWhole, kWhole})).input(b).output(b).build();
}

// trmm, trsm: a triangular matrix or its inverse from the left, or from the right.
Rule triangular_rule(const OperatorView& op) {
  AttributeReader attrs(op.node.attrs);
  const bool from_right = attrs.boolean("rightside", false);
  return attrs.failed() ? Rule() : applied_matrix(op, from_right);
}

Rule solve_rule(const OperatorView& op) { return applied_matrix(op, false); }

}  // namespace

void register_linear_algebra_rules(RuleRegistry* registry) {
  for (const char* name : {"_linalg_det", "_linalg_sumlogdiag"}) (*registry)[name] = matrix_to_number;
  (*registry)["_linalg_slogdet"] = matrix_to_numbers;
  for (const char* name : {"_linalg_extractdiag", "_linalg_extracttrian", "_npi_eigvals", "_npi_eigvalsh"}) {
    (*registry)[name] = matrix_to_vector;
  }
  for (const char* name : {"_linalg_makediag", "_linalg_maketrian"}) (*registry)[name] = vector_to_matrix;
  for (const char* name : {"_linalg_inverse", "_linalg_potrf", "_linalg_potri", "_npi_cholesky",
                           "_npi_pinv_scalar_rcond"}) {
    (*registry)[name] = matrix_to_matrix;
  }
  (*registry)["_linalg_gelqf"] = matrix_to_matrices;
  (*registry)["_linalg_syevd"] = matrix_to_matrix_and_vector;
  for (const char* name : {"_npi_eig", "_npi_eigh"}) (*registry)[name] = matrix_to_vector_and_matrix;
  (*registry)["_npi_svd"] = singular_values_rule;
  (*registry)["_npi_pinv"] = pseudo_inverse_rule;
  for (const char* name : {"_linalg_trmm", "_linalg_trsm"}) (*registry)[name] = triangular_rule;
  (*registry)["_npi_solve"] = solve_rule;
}

}  // namespace soybean
