// Operators that pick elements by index: the dims of the indices are factors.
// So is the dim that is indexed, where MXNet clips indices to it (see IndexInto);
// it is whole where an index that is out of range means something else.
#include <algorithm>

#include "rules/attributes.h"
#include "rules/families.h"
#include "rules/rule_builder.h"

namespace soybean {
namespace {

std::string numbered(const std::string& name, size_t i) {
  return i == 0 ? name : name + std::to_string(i);
}

// Factors "i", "i1", ... for the dims of an index tensor. The first is called
// `first`.
Dims index_factors(RuleBuilder* rule, const Shape& indices, const std::string& first) {
  Dims dims;
  for (size_t d = 0; d < indices.size(); ++d) {
    dims.push_back(rule->factor(d == 0 ? first : numbered("i", d), indices[d]));
  }
  return dims;
}

// indices[n, ...] weight[v, o] -> out[n, ..., o], a sum over v
Rule embedding_rule(const OperatorView& op) {
  AttributeReader attrs(op.node.attrs);
  const int64_t input_dim = attrs.integer("input_dim");
  const int64_t output_dim = attrs.integer("output_dim");
  // A sparse gradient is neither sliced nor summed by the tiled graph.
  const bool sparse = attrs.boolean("sparse_grad", false);
  if (attrs.failed() || sparse || !has_operands(op, 2, 1)) return Rule();
  RuleBuilder rule(op);
  const Dims indices = index_factors(&rule, op.inputs[0].shape, "n");
  const int v = rule.reduced_factor("v", input_dim);
  const int o = rule.factor("o", output_dim);
  Dims out = indices;
  out.push_back(o);
  rule.input(indices).input({v, o}).output(out).index_into(0, v);
  return rule.extent_attr("input_dim", v).extent_attr("output_dim", o).build();
}

bool clips(AttributeReader* attrs) { return attrs->text("mode", "clip") == "clip"; }

// Dim `axis` of the data is replaced by the dims of the indices.
Rule take_rule(const OperatorView& op) {
  AttributeReader attrs(op.node.attrs);
  const int64_t dim = attrs.integer("axis", 0);
  if (attrs.failed() || !has_operands(op, 2, 1)) return Rule();
  const Shape& data = op.inputs[0].shape;
  const auto axis = axis_index(dim, data.size());
  if (!axis) return Rule();
  RuleBuilder rule(op);
  Dims data_dims = rule.dim_factors(data, {*axis});
  const Dims indices = index_factors(&rule, op.inputs[1].shape, "i");
  if (clips(&attrs) && !indices.empty()) {
    data_dims[*axis] = rule.reduced_factor("v", data[*axis]);
    rule.index_into(1, data_dims[*axis]);
  }
  Dims out = data_dims;
  const auto at = out.erase(out.begin() + static_cast<std::ptrdiff_t>(*axis));
  out.insert(at, indices.begin(), indices.end());
  return rule.input(data_dims).input(indices).output(out).build();
}

// One element along `axis` for each place of the index, which has the data's
// dims without the axis, or with it at extent 1.
Rule pick_rule(const OperatorView& op) {
  AttributeReader attrs(op.node.attrs);
  const int64_t dim = attrs.has("axis") ? attrs.optional_integer("axis").value_or(INT64_MAX) : -1;
  const bool keepdims = attrs.boolean("keepdims", false);
  if (attrs.failed() || !has_operands(op, 2, 1)) return Rule();
  const Shape& data = op.inputs[0].shape;
  const auto axis = axis_index(dim, data.size());
  if (!axis) return Rule();
  RuleBuilder rule(op);
  const Dims dims = rule.dim_factors(data, {*axis});
  Dims without_axis = dims;
  without_axis.erase(without_axis.begin() + static_cast<std::ptrdiff_t>(*axis));
  const bool index_keeps_axis = op.inputs[1].shape.size() == data.size();
  Dims data_dims = dims;
  if (clips(&attrs)) {
    data_dims[*axis] = rule.reduced_factor("v", data[*axis]);
    rule.index_into(1, data_dims[*axis]);
  }
  rule.input(data_dims).input(index_keeps_axis ? dims : without_axis);
  // A vector without its only dim has shape (1,) outside NumPy's semantics.
  Dims out = keepdims ? dims : without_axis;
  if (out.empty() && op.outputs[0].shape.size() == 1) out.push_back(kWhole);
  return rule.output(out).build();
}

// a[n, k] index[n] -> out[n]
Rule batch_take_rule(const OperatorView& op) {
  if (!has_operands(op, 2, 1) || op.inputs[0].shape.size() != 2) return Rule();
  RuleBuilder rule(op);
  const int n = rule.factor("n", op.inputs[0].shape[0]);
  return rule.input({n, kWhole}).input({n}).output({n}).build();
}

// indices[n, ...] -> out[n, ..., v]. An index out of range is hot nowhere.
Rule one_hot_rule(const OperatorView& op) {
  AttributeReader attrs(op.node.attrs);
  const int64_t depth = attrs.integer("depth");
  if (attrs.failed() || !has_operands(op, 1, 1)) return Rule();
  RuleBuilder rule(op);
  const Dims indices = index_factors(&rule, op.inputs[0].shape, "n");
  const int v = rule.factor("v", depth);
  Dims out = indices;
  out.push_back(v);
  return rule.input(indices).output(out).index_into(0, v).extent_attr("depth", v).build();
}

// data[the dims of the indices after the first, ...] indices[k, ...] -> out[k dims that are
// indexed, ...], whose shape an attribute states
Rule scatter_nd_rule(const OperatorView& op) {
  AttributeReader attrs(op.node.attrs);
  attrs.integers("shape");
  if (attrs.failed() || !has_operands(op, 2, 1)) return Rule();
  const Shape& data = op.inputs[0].shape;
  const Shape& indices = op.inputs[1].shape;
  const Shape& out = op.outputs[0].shape;
  if (indices.empty() || indices[0] < 1 || indices[0] > static_cast<int64_t>(out.size())) return Rule();
  const size_t indexed = static_cast<size_t>(indices[0]);
  DimSet whole;
  for (size_t d = 0; d < indexed; ++d) whole.insert(d);
  RuleBuilder rule(op);
  const Dims out_dims = rule.dim_factors(out, whole);
  Dims data_dims(indices.size() - 1, kWhole);
  data_dims.insert(data_dims.end(), out_dims.begin() + static_cast<std::ptrdiff_t>(indexed), out_dims.end());
  if (data_dims.size() != data.size()) return Rule();
  rule.input(data_dims).input(Dims(indices.size(), kWhole)).output(out_dims);
  return rule.shape_attr("shape", 0).build();
}

// ravel_multi_index: indices[k, n] -> out[n]
Rule ravel_rule(const OperatorView& op) {
  if (!has_operands(op, 1, 1) || op.outputs[0].shape.size() != 1) return Rule();
  RuleBuilder rule(op);
  const int n = rule.factor("n", op.outputs[0].shape[0]);
  return rule.input({kWhole, n}).output({n}).build();
}

// unravel_index: places[n] -> out[k, n]. Of more dims MXNet 1.9.1 writes beyond its output.
Rule unravel_rule(const OperatorView& op) {
  if (!has_operands(op, 1, 1) || op.inputs[0].shape.size() != 1) return Rule();
  RuleBuilder rule(op);
  const int n = rule.factor("n", op.inputs[0].shape[0]);
  return rule.input({n}).output({kWhole, n}).build();
}

// data[k dims that are indexed, ...] indices[k, ...] -> the dims of the indices
// after the first, then those of the data that are not indexed
Rule gather_nd_rule(const OperatorView& op) {
  if (!has_operands(op, 2, 1)) return Rule();
  const Shape& data = op.inputs[0].shape;
  const Shape& indices = op.inputs[1].shape;
  if (indices.empty() || indices[0] < 1) return Rule();
  if (indices[0] > static_cast<int64_t>(data.size())) return Rule();
  const size_t indexed = static_cast<size_t>(indices[0]);
  DimSet whole;
  for (size_t d = 0; d < indexed; ++d) whole.insert(d);
  RuleBuilder rule(op);
  const Dims data_dims = rule.dim_factors(data, whole);
  const Dims out_indices = index_factors(&rule, Shape(indices.begin() + 1, indices.end()), "i");
  Dims index_dims = {kWhole};
  index_dims.insert(index_dims.end(), out_indices.begin(), out_indices.end());
  Dims out = out_indices;
  out.insert(out.end(), data_dims.begin() + static_cast<std::ptrdiff_t>(indexed), data_dims.end());
  return rule.input(data_dims).input(index_dims).output(out).build();
}

// data[n, ...] -> indices[n, ..., axes]: along a dim of `axes` (all by default) what a
// group makes would be counted from its own beginning.
Rule index_array_rule(const OperatorView& op) {
  AttributeReader attrs(op.node.attrs);
  const auto axes = attrs.optional_integers("axes");
  if (attrs.failed() || !has_operands(op, 1, 1)) return Rule();
  const size_t rank = op.inputs[0].shape.size();
  DimSet whole;
  for (size_t d = 0; d < rank && !axes; ++d) whole.insert(d);
  for (const int64_t axis : axes.value_or(Integers{})) {
    const auto dim = axis_index(axis, rank);
    if (!dim) return Rule();
    whole.insert(*dim);
  }
  RuleBuilder rule(op);
  const Dims dims = rule.dim_factors(op.inputs[0].shape, whole);
  Dims out = dims;
  out.push_back(kWhole);
  return rule.input(dims).output(out).build();
}

// old[v, d1, ...] index[i] new[i, d1, ...] -> old with the rows `index` replaced
Rule index_copy_rule(const OperatorView& op) {
  if (!has_operands(op, 3, 1)) return Rule();
  RuleBuilder rule(op);
  const Dims dims = rule.dim_factors(op.inputs[0].shape, {0});
  return rule.input(dims).input({kWhole}).input(dims).output(dims).build();
}

}  // namespace

void register_indexing_rules(RuleRegistry* registry) {
  (*registry)["Embedding"] = embedding_rule;
  (*registry)["take"] = take_rule;
  (*registry)["pick"] = pick_rule;
  (*registry)["batch_take"] = batch_take_rule;
  (*registry)["scatter_nd"] = scatter_nd_rule;
  (*registry)["_ravel_multi_index"] = ravel_rule;
  (*registry)["_unravel_index"] = unravel_rule;
  (*registry)["one_hot"] = one_hot_rule;
  (*registry)["gather_nd"] = gather_nd_rule;
  (*registry)["_contrib_index_array"] = index_array_rule;
  (*registry)["_contrib_index_copy"] = index_copy_rule;
}

}  // namespace soybean
