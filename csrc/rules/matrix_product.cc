// Products that sum over shared indices. Every one of them is an einsum, stated
// by the names of the dims of its operands.
#include <algorithm>

#include "rules/attributes.h"
#include "rules/families.h"
#include "rules/rule_builder.h"

namespace soybean {
namespace {

using Names = std::vector<std::string>;  // one per dim; "" for a dim that is whole

// "m", "m1", "m2", ...
std::string numbered(const std::string& name, size_t i) {
  return i == 0 ? name : name + std::to_string(i);
}

Dims named_dims(const Names& names, const std::map<std::string, int>& factors) {
  Dims dims;
  for (const std::string& name : names) dims.push_back(name.empty() ? kWhole : factors.at(name));
  return dims;
}

// With an `addend`, one more operand that has the dims of the result is added to it.
Rule einsum_rule(const OperatorView& op, const std::vector<Names>& inputs, const Names& out, bool addend = false) {
  if (!has_operands(op, inputs.size() + (addend ? 1 : 0), 1)) return Rule();
  RuleBuilder rule(op);
  std::map<std::string, int> factors;
  for (size_t i = 0; i < inputs.size(); ++i) {
    const Shape& shape = op.inputs[i].shape;
    if (shape.size() != inputs[i].size()) return Rule();
    for (size_t d = 0; d < shape.size(); ++d) {
      const std::string& name = inputs[i][d];
      if (name.empty() || factors.count(name) > 0) continue;
      const bool kept = std::count(out.begin(), out.end(), name) > 0;
      factors[name] = kept ? rule.factor(name, shape[d]) : rule.reduced_factor(name, shape[d]);
    }
  }
  for (const std::string& name : out) {
    if (!name.empty() && factors.count(name) == 0) return Rule();
  }
  for (const Names& names : inputs) rule.input(named_dims(names, factors));
  if (addend) rule.addend(named_dims(out, factors));
  return rule.output(named_dims(out, factors)).build();
}

// Names the dims of an operand: `contracted` gets k, the others name, name1, ...
Names contraction_names(size_t rank, size_t contracted, const std::string& name, Names* out) {
  Names names(rank);
  size_t free = 0;
  for (size_t d = 0; d < rank; ++d) {
    names[d] = d == contracted ? "k" : numbered(name, free++);
    if (d != contracted) out->push_back(names[d]);
  }
  return names;
}

// dot: the last dim of a with the first of b, or the other end when transposed.
// Two vectors give shape (1,).
Rule dot_rule(const OperatorView& op) {
  AttributeReader attrs(op.node.attrs);
  const bool transpose_a = attrs.boolean("transpose_a", false);
  const bool transpose_b = attrs.boolean("transpose_b", false);
  const std::string storage = attrs.text("forward_stype", "None");
  if (attrs.failed() || !has_operands(op, 2, 1)) return Rule();
  if (storage != "None" && storage != "default") return Rule();
  const size_t rank_a = op.inputs[0].shape.size();
  const size_t rank_b = op.inputs[1].shape.size();
  if (rank_a == 0 || rank_b == 0) return Rule();
  Names out;
  const Names a = contraction_names(rank_a, transpose_a ? 0 : rank_a - 1, "n", &out);
  const Names b = contraction_names(rank_b, transpose_b ? rank_b - 1 : 0, "m", &out);
  if (out.empty()) out.resize(op.outputs.at(0).shape.size());
  return einsum_rule(op, {a, b}, out);
}

// np.dot: the last dim of a with the second last of b (the only one of a vector).
Rule numpy_dot_rule(const OperatorView& op) {
  if (!has_operands(op, 2, 1)) return Rule();
  const size_t rank_a = op.inputs[0].shape.size();
  const size_t rank_b = op.inputs[1].shape.size();
  if (rank_a == 0 || rank_b == 0) return Rule();
  Names out;
  const Names a = contraction_names(rank_a, rank_a - 1, "n", &out);
  const Names b = contraction_names(rank_b, rank_b == 1 ? 0 : rank_b - 2, "m", &out);
  return einsum_rule(op, {a, b}, out);
}

// Matrices whose rows run along dim `rows_at` and columns along the last; the other dims
// are the batch, one for both. A third operand is added to the product.
Rule batched_product_rule(const OperatorView& op, bool transpose_a, bool transpose_b, int64_t rows_at = -2) {
  if (op.inputs.size() < 2) return Rule();
  const size_t rank = op.inputs[0].shape.size();
  const auto row_dim = axis_index(rows_at, rank);
  if (rank < 2 || !row_dim || *row_dim + 1 == rank) return Rule();
  auto with_matrix = [&](const std::string& rows, const std::string& columns) {
    Names names;
    size_t batch = 0;
    for (size_t d = 0; d + 1 < rank; ++d) names.push_back(d == *row_dim ? rows : numbered("b", batch++));
    names.push_back(columns);
    return names;
  };
  const Names a = transpose_a ? with_matrix("k", "n") : with_matrix("n", "k");
  const Names b = transpose_b ? with_matrix("m", "k") : with_matrix("k", "m");
  const Names out = with_matrix("n", "m");
  return einsum_rule(op, {a, b}, out, op.inputs.size() == 3);
}

Rule batch_dot_rule(const OperatorView& op) {
  AttributeReader attrs(op.node.attrs);
  const bool transpose_a = attrs.boolean("transpose_a", false);
  const bool transpose_b = attrs.boolean("transpose_b", false);
  const std::string storage = attrs.text("forward_stype", "None");
  if (attrs.failed() || (storage != "None" && storage != "default")) return Rule();
  return batched_product_rule(op, transpose_a, transpose_b);
}

// gemm (with an addend) and gemm2
template <size_t operands>
Rule gemm_rule(const OperatorView& op) {
  AttributeReader attrs(op.node.attrs);
  const bool transpose_a = attrs.boolean("transpose_a", false);
  const bool transpose_b = attrs.boolean("transpose_b", false);
  const int64_t axis = attrs.integer("axis", -2);
  if (attrs.failed() || op.inputs.size() != operands) return Rule();
  Rule rule = batched_product_rule(op, transpose_a, transpose_b, axis);
  if (rule.known && operands == 3) {
    rule.runs_without_addends_as = "_linalg_gemm2";
    for (const char* name : {"transpose_a", "transpose_b", "alpha", "axis"}) {
      if (attrs.has(name)) rule.without_addends[name] = attrs.text(name, "");
    }
  }
  return rule;
}

// syrk: a[..., n, k] a[..., m, k] -> out[..., n, m] with one tensor as both operands, or its
// transpose: n and m are rows of the same tensor and whole, the sum over k can be cut.
Rule syrk_rule(const OperatorView& op) {
  AttributeReader attrs(op.node.attrs);
  const bool transpose = attrs.boolean("transpose", false);
  if (attrs.failed() || !has_operands(op, 1, 1) || op.inputs[0].shape.size() < 2) return Rule();
  Names names;
  for (size_t d = 0; d + 2 < op.inputs[0].shape.size(); ++d) names.push_back(numbered("b", d));
  Names out = names;
  names.push_back(transpose ? "k" : "");
  names.push_back(transpose ? "" : "k");
  out.push_back("");
  out.push_back("");
  return einsum_rule(op, {names}, out);
}

// Whether `batch` is repeated along a dim that comes after one of its own dims:
// (2, 1) used as (2, 3), but not (1, 3) or (3) used as (2, 3).
bool repeats_inner_dim(const Shape& batch, const Shape& out) {
  const size_t missing = out.size() - batch.size();
  bool own = false;
  for (size_t d = 0; d < batch.size(); ++d) {
    if (own && batch[d] != out[missing + d]) return true;
    own = own || batch[d] > 1;
  }
  return false;
}

// np.matmul: batch dims are broadcast; a vector is a matrix without one dim.
// Where an inner batch dim is repeated, MXNet 1.9.1 gives a wrong gradient, which
// a cut would turn into another wrong (or the right) one.
Rule matmul_rule(const OperatorView& op) {
  if (!has_operands(op, 2, 1)) return Rule();
  const Shape& a = op.inputs[0].shape;
  const Shape& b = op.inputs[1].shape;
  const Shape& out = op.outputs[0].shape;
  if (a.empty() || b.empty()) return Rule();
  Names out_tail;
  if (a.size() > 1) out_tail.push_back("n");
  if (b.size() > 1) out_tail.push_back("m");
  if (out.size() < out_tail.size()) return Rule();
  const size_t batch = out.size() - out_tail.size();
  for (const Shape* shape : {&a, &b}) {
    const size_t own = shape->size() - std::min<size_t>(shape->size(), 2);
    if (own > batch) return Rule();
    const Shape own_batch(shape->begin(), shape->begin() + static_cast<std::ptrdiff_t>(own));
    const Shape out_batch(out.begin(), out.begin() + static_cast<std::ptrdiff_t>(batch));
    if (repeats_inner_dim(own_batch, out_batch)) return Rule();
  }
  // The batch dims of an operand; whole where it is broadcast.
  auto names_of = [&](const Shape& shape, const Names& tail) {
    Names names;
    const size_t own = shape.size() - tail.size();
    for (size_t d = 0; d < own && own <= batch; ++d) {
      const size_t out_dim = batch - own + d;
      names.push_back(shape[d] == out[out_dim] ? numbered("b", out_dim) : "");
    }
    names.insert(names.end(), tail.begin(), tail.end());
    return names;
  };
  const Names a_names = names_of(a, a.size() > 1 ? Names{"n", "k"} : Names{"k"});
  const Names b_names = names_of(b, b.size() > 1 ? Names{"k", "m"} : Names{"k"});
  return einsum_rule(op, {a_names, b_names}, names_of(out, out_tail));
}

// The summed dims are paired in order; the others of a, then those of b, remain.
Rule tensordot(const OperatorView& op, const Integers& a_axes, const Integers& b_axes) {
  if (!has_operands(op, 2, 1) || a_axes.size() != b_axes.size()) return Rule();
  Names out;
  std::vector<Names> inputs;
  for (size_t i = 0; i < 2; ++i) {
    const size_t rank = op.inputs[i].shape.size();
    const Integers& axes = i == 0 ? a_axes : b_axes;
    if (!axis_indices(axes, rank)) return Rule();
    Names names(rank);
    for (size_t s = 0; s < axes.size(); ++s) names[*axis_index(axes[s], rank)] = numbered("k", s);
    size_t free = 0;
    for (std::string& name : names) {
      if (!name.empty()) continue;
      name = numbered(i == 0 ? "n" : "m", free++);
      out.push_back(name);
    }
    inputs.push_back(names);
  }
  return einsum_rule(op, inputs, out);
}

Rule tensordot_rule(const OperatorView& op) {
  AttributeReader attrs(op.node.attrs);
  const Integers a_axes = attrs.integers("a_axes_summed");
  const Integers b_axes = attrs.integers("b_axes_summed");
  return attrs.failed() ? Rule() : tensordot(op, a_axes, b_axes);
}

// The last `axes` dims of a with the first of b.
Rule tensordot_int_axes_rule(const OperatorView& op) {
  AttributeReader attrs(op.node.attrs);
  const int64_t count = attrs.integer("axes");
  if (attrs.failed() || !has_operands(op, 2, 1)) return Rule();
  const int64_t rank = static_cast<int64_t>(op.inputs[0].shape.size());
  if (count < 0 || count > rank) return Rule();
  Integers a_axes;
  Integers b_axes;
  for (int64_t i = 0; i < count; ++i) {
    a_axes.push_back(rank - count + i);
    b_axes.push_back(i);
  }
  return tensordot(op, a_axes, b_axes);
}

// "ij,kj->ik", with the result written out and without an ellipsis.
Rule numpy_einsum_rule(const OperatorView& op) {
  AttributeReader attrs(op.node.attrs);
  std::vector<Names> operands(1);
  bool result = false;
  const std::string subscripts = attrs.text("subscripts", "");
  for (size_t i = 0; i < subscripts.size(); ++i) {
    const char c = subscripts[i];
    if (c == ' ') continue;
    if (c == '-' && i + 1 < subscripts.size() && subscripts[i + 1] == '>' && !result) {
      result = true;
      operands.emplace_back();
      ++i;
    } else if (c == ',' && !result) {
      operands.emplace_back();
    } else if ((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z')) {
      operands.back().emplace_back(1, c);
    } else {
      return Rule();
    }
  }
  if (!result) return Rule();
  const Names out = operands.back();
  operands.pop_back();
  return einsum_rule(op, operands, out);
}

// a[n, k] b[m, k] ... -> out[n * m * ..., k]: the products of all rows, n outermost
Rule khatri_rao_rule(const OperatorView& op) {
  if (op.inputs.empty() || op.outputs.size() != 1 || op.inputs[0].shape.size() != 2) return Rule();
  RuleBuilder rule(op);
  const int n = rule.factor("n", op.inputs[0].shape[0]);
  const int k = rule.factor("k", op.inputs[0].shape[1]);
  for (size_t i = 0; i < op.inputs.size(); ++i) rule.input({i == 0 ? n : kWhole, k});
  return rule.output({n, k}).build();
}

}  // namespace

void register_matrix_product_rules(RuleRegistry* registry) {
  (*registry)["khatri_rao"] = khatri_rao_rule;
  (*registry)["dot"] = dot_rule;
  (*registry)["_np_dot"] = numpy_dot_rule;
  (*registry)["batch_dot"] = batch_dot_rule;
  (*registry)["_linalg_gemm"] = gemm_rule<3>;
  (*registry)["_linalg_gemm2"] = gemm_rule<2>;
  (*registry)["_linalg_syrk"] = syrk_rule;
  (*registry)["_npi_matmul"] = matmul_rule;
  (*registry)["_npi_tensordot"] = tensordot_rule;
  (*registry)["_npi_tensordot_int_axes"] = tensordot_int_axes_rule;
  (*registry)["_npi_einsum"] = numpy_einsum_rule;
}

}  // namespace soybean
