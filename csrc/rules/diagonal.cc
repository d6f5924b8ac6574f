// Operators in which the place of an element along two dims counts against each other
// (diagonals, triangles). Every other dim is a factor, and so is one of the two: a part that
// begins at row b has its diagonal b columns further to the right.
#include "rules/attributes.h"
#include "rules/families.h"
#include "rules/rule_builder.h"

namespace soybean {
namespace {

// The diagonal of the elements (i, i + offset) along two dims of an operand.
struct Diagonal {
  size_t rows = 0, columns = 1;
  int64_t offset = 0;

  // The dim each of whose elements has one on the diagonal, which can be cut; none where the
  // diagonal is shorter than both dims.
  std::optional<size_t> dim(const Shape& shape) const {
    if (offset >= 0 && shape[columns] - offset >= shape[rows]) return rows;
    if (offset <= 0 && shape[rows] + offset >= shape[columns]) return columns;
    return std::nullopt;
  }
};

// `axes`: whether attributes say along which dims; 0 and 1 if not, of a matrix.
std::optional<Diagonal> read_diagonal(const OperatorView& op, const char* offset, bool axes) {
  AttributeReader attrs(op.node.attrs);
  Diagonal diagonal;
  diagonal.offset = attrs.integer(offset, 0);
  const Integers dims = {axes ? attrs.integer("axis1", 0) : 0, axes ? attrs.integer("axis2", 1) : 1};
  if (attrs.failed() || !has_operands(op, 1, 1)) return std::nullopt;
  const size_t rank = op.inputs[0].shape.size();
  const int64_t size = static_cast<int64_t>(1) << 40;  // an offset beyond any dim, safe to subtract
  if (!axis_indices(dims, rank) || diagonal.offset < -size || diagonal.offset > size) return std::nullopt;
  diagonal.rows = *axis_index(dims[0], rank);
  diagonal.columns = *axis_index(dims[1], rank);
  return diagonal;
}

// The diagonal becomes the last dim, or is summed up.
Rule diagonal_rule(const OperatorView& op, const char* offset, bool axes, bool sum) {
  const auto diagonal = read_diagonal(op, offset, axes);
  if (!diagonal) return Rule();
  const Shape& shape = op.inputs[0].shape;
  RuleBuilder rule(op);
  Dims dims = rule.dim_factors(shape, {diagonal->rows, diagonal->columns});
  Dims out;
  for (size_t d = 0; d < dims.size(); ++d) {
    if (d != diagonal->rows && d != diagonal->columns) out.push_back(dims[d]);
  }
  int along = kWhole;
  if (const auto dim = diagonal->dim(shape)) {
    const std::string name = *dim == 0 ? "n" : "d" + std::to_string(*dim);
    along = sum ? rule.reduced_factor(name, shape[*dim]) : rule.factor(name, shape[*dim]);
    dims[*dim] = along;
    rule.start_attr(offset, along, static_cast<double>(diagonal->offset), *dim == diagonal->rows ? 1 : -1);
  }
  if (!sum) out.push_back(along);
  return rule.input(dims).output(out).build();
}

// Of a vector these make a matrix, in which every element has its place.
Rule numpy_diag_rule(const OperatorView& op) {
  if (op.inputs.empty() || op.inputs[0].shape.size() != 2) return Rule();
  return diagonal_rule(op, "k", false, false);
}

Rule diag_rule(const OperatorView& op) { return diagonal_rule(op, "k", true, false); }
Rule numpy_diagonal_rule(const OperatorView& op) { return diagonal_rule(op, "offset", true, false); }
Rule trace_rule(const OperatorView& op) { return diagonal_rule(op, "offset", true, true); }

// Matrices in the last two dims. Of a vector a matrix is made.
Rule triangle_rule(const OperatorView& op) {
  AttributeReader attrs(op.node.attrs);
  const int64_t offset = attrs.integer("k", 0);
  if (attrs.failed() || !has_operands(op, 1, 1) || op.inputs[0].shape.size() < 2) return Rule();
  const size_t rank = op.inputs[0].shape.size();
  RuleBuilder rule(op);
  const Dims dims = rule.dim_factors(op.inputs[0].shape, {rank - 1});
  rule.start_attr("k", dims[rank - 2], static_cast<double>(offset), 1);
  return rule.input(dims).output(dims).build();
}

}  // namespace

void register_diagonal_rules(RuleRegistry* registry) {
  (*registry)["diag"] = diag_rule;
  (*registry)["_np_diag"] = numpy_diag_rule;
  (*registry)["_np_diagonal"] = numpy_diagonal_rule;
  (*registry)["_np_trace"] = trace_rule;
  (*registry)["_npi_tril"] = triangle_rule;
}

}  // namespace soybean
