// Operators that keep the elements in order and give them another shape.
//
// Both shapes are divided into runs of dims with equal products. The leading
// dims of two runs then cut the elements alike wherever both are multiples of
// the number of parts:
//
//     (8, 6, 5, 5) -> (8, 150)   runs (8 | 8) and (6, 5, 5 | 150): n = 8, c = 6
//     (12, 4) -> (8, 6)          run (12, 4 | 8, 6): n = gcd(12, 8) = 4
#include <numeric>

#include "rules/attributes.h"
#include "rules/families.h"
#include "rules/rule_builder.h"

namespace soybean {
namespace {

struct Run {
  size_t input;   // leading dim of the run in the input
  size_t output;  // and in the output
};

void skip_ones(const Shape& shape, size_t* d) {
  while (*d < shape.size() && shape[*d] == 1) ++*d;
}

// Multiplies the next dim into a product; false at the end or on overflow.
bool extend(const Shape& shape, size_t* d, int64_t* product) {
  if (++*d >= shape.size()) return false;
  return !__builtin_mul_overflow(*product, shape[*d], product);
}

// No value when the shapes do not hold the same number of elements.
std::optional<std::vector<Run>> matching_runs(const Shape& in, const Shape& out) {
  std::vector<Run> runs;
  size_t i = 0;
  size_t o = 0;
  while (true) {
    skip_ones(in, &i);
    skip_ones(out, &o);
    if (i == in.size() && o == out.size()) return runs;
    if (i == in.size() || o == out.size()) return std::nullopt;
    runs.push_back({i, o});
    int64_t in_product = in[i];
    int64_t out_product = out[o];
    while (in_product != out_product) {
      const bool grown = in_product < out_product ? extend(in, &i, &in_product)
                                                  : extend(out, &o, &out_product);
      if (!grown) return std::nullopt;
    }
    ++i;
    ++o;
  }
}

struct ReshapeDims {
  Dims input;
  Dims output;
};

std::optional<ReshapeDims> reshape_dims(RuleBuilder* rule, const Shape& in, const Shape& out) {
  const auto runs = matching_runs(in, out);
  if (!runs) return std::nullopt;
  ReshapeDims dims{Dims(in.size(), kWhole), Dims(out.size(), kWhole)};
  for (const Run& run : *runs) {
    const int64_t size = std::gcd(in[run.input], out[run.output]);
    const std::string name = run.input == 0 ? "n" : "d" + std::to_string(run.input);
    if (size > 1) dims.input[run.input] = dims.output[run.output] = rule->factor(name, size);
  }
  return dims;
}

// The group's shape follows from its operand, or is written into `shape_attr`.
Rule reshape_to_output(const OperatorView& op, const char* shape_attr) {
  if (!has_operands(op, 1, 1)) return Rule();
  RuleBuilder rule(op);
  const auto dims = reshape_dims(&rule, op.inputs[0].shape, op.outputs[0].shape);
  if (!dims) return Rule();
  if (shape_attr != nullptr) rule.shape_attr(shape_attr, 0);
  return rule.input(dims->input).output(dims->output).build();
}

Rule flatten_rule(const OperatorView& op) { return reshape_to_output(op, nullptr); }

// A group's shape is written as plain extents, which mean the same in every
// dialect of codes and from either end.
Rule legacy_reshape_rule(const OperatorView& op) {
  AttributeReader attrs(op.node.attrs);
  const Integers shape = attrs.integers("shape");
  // The deprecated target_shape counts only where shape is not given.
  if (attrs.failed() || shape.empty()) return Rule();
  return reshape_to_output(op, "shape");
}

Rule numpy_reshape_rule(const OperatorView& op) {
  AttributeReader attrs(op.node.attrs);
  attrs.integers("newshape");
  if (attrs.failed() || !attrs.has("newshape") || attrs.text("order", "C") != "C") return Rule();
  return reshape_to_output(op, "newshape");
}

// lhs takes the shape of rhs, which is cut as the output is.
Rule reshape_like_rule(const OperatorView& op) {
  if (!has_operands(op, 2, 1)) return Rule();
  AttributeReader attrs(op.node.attrs);
  for (const char* name : {"lhs_begin", "lhs_end", "rhs_begin", "rhs_end"}) {
    if (attrs.optional_integer(name) || attrs.failed()) return Rule();
  }
  RuleBuilder rule(op);
  const auto dims = reshape_dims(&rule, op.inputs[0].shape, op.outputs[0].shape);
  if (!dims) return Rule();
  return rule.input(dims->input).input(dims->output).output(dims->output).build();
}

// Adds a dim of extent 1 at `axis`.
Rule expand_dims_rule(const OperatorView& op) {
  AttributeReader attrs(op.node.attrs);
  const int64_t axis = attrs.integer("axis");
  if (attrs.failed() || !has_operands(op, 1, 1)) return Rule();
  const auto added = axis_index(axis, op.outputs[0].shape.size());
  if (!added) return Rule();
  RuleBuilder rule(op);
  const Dims dims = rule.dim_factors(op.inputs[0].shape);
  if (*added > dims.size()) return Rule();
  Dims out = dims;
  out.insert(out.begin() + static_cast<std::ptrdiff_t>(*added), kWhole);
  return rule.input(dims).output(out).build();
}

std::string tuple_text(const DimSet& dims) {
  std::string text = "(";
  for (size_t d : dims) text += std::to_string(d) + ", ";
  return text + ")";
}

DimSet dims_of_extent_one(const Shape& shape) {
  DimSet ones;
  for (size_t d = 0; d < shape.size(); ++d) {
    if (shape[d] == 1) ones.insert(d);
  }
  return ones;
}

// Removes the dims of extent 1 that are named, or all. A group is told which:
// a dim that a cut has left at extent 1 must stay.
Rule squeeze_rule(const OperatorView& op) {
  AttributeReader attrs(op.node.attrs);
  const auto axes = attrs.optional_integers("axis");
  if (attrs.failed() || !has_operands(op, 1, 1)) return Rule();
  const Shape& in = op.inputs[0].shape;
  const auto removed = axes ? axis_indices(*axes, in.size()) : dims_of_extent_one(in);
  if (!removed) return Rule();
  RuleBuilder rule(op);
  const Dims dims = rule.dim_factors(in, *removed);
  Dims out;
  for (size_t d = 0; d < in.size(); ++d) {
    if (removed->count(d) == 0) out.push_back(dims[d]);
  }
  // The legacy operator leaves one dim of a tensor that has no other.
  if (out.empty() && op.outputs[0].shape.size() == 1) out.push_back(kWhole);
  if (!axes) rule.restate("axis", tuple_text(*removed));
  return rule.input(dims).output(out).build();
}

// depth_to_space data[n, c * b * b, h, w] -> out[n, c, h * b, w * b], or back:
// pixels of the finer image lie in blocks of those of the coarser one.
Rule depth_space_rule(const OperatorView& op) {
  if (!has_operands(op, 1, 1)) return Rule();
  const Shape& in = op.inputs[0].shape;
  const Shape& out = op.outputs[0].shape;
  if (in.size() != 4 || out.size() != 4) return Rule();
  const Shape coarse = in[2] < out[2] ? in : out;
  RuleBuilder rule(op);
  const Dims dims = rule.image_factors(coarse, 1, {1});
  return rule.input(dims).output(dims).build();
}

}  // namespace

void register_reshape_rules(RuleRegistry* registry) {
  (*registry)["Flatten"] = flatten_rule;
  (*registry)["Reshape"] = legacy_reshape_rule;
  (*registry)["_np_reshape"] = numpy_reshape_rule;
  (*registry)["_npx_reshape"] = numpy_reshape_rule;
  (*registry)["reshape_like"] = reshape_like_rule;
  (*registry)["expand_dims"] = expand_dims_rule;
  (*registry)["squeeze"] = squeeze_rule;
  (*registry)["_np_squeeze"] = squeeze_rule;
  // Of one tensor, to which dims of extent 1 are added; of several, each would have its own.
  for (const char* name : {"_np_atleast_1d", "_np_atleast_2d", "_np_atleast_3d"}) (*registry)[name] = flatten_rule;
  (*registry)["depth_to_space"] = depth_space_rule;
  (*registry)["space_to_depth"] = depth_space_rule;
}

}  // namespace soybean
