#include "rules/written_out.h"

#include <cstdio>
#include <map>
#include <utility>

#include "rules/attributes.h"
#include "rules/rule_builder.h"

namespace soybean {
namespace {

using Entries = std::vector<Entry>;
using DimList = std::vector<size_t>;
using Recipe = Entry (*)(const Node&, const Entries&, PrimitiveWriter*);

// An epsilon as MXNet keeps it, in single precision.
std::string epsilon(const Node& node, double usual) {
  char text[32];
  std::snprintf(text, sizeof(text), "%.17g",
                static_cast<double>(static_cast<float>(AttributeReader(node.attrs).number("eps", usual))));
  return text;
}

DimList dims_from(size_t first, size_t rank) {
  DimList dims;
  for (size_t d = first; d < rank; ++d) dims.push_back(d);
  return dims;
}

// A vector as a tensor of this rank, along one of its dims, ready to broadcast.
Entry as_row(const std::string& what, Entry vector, size_t rank, size_t dim, PrimitiveWriter* w) {
  Shape shape(rank, 1);
  shape[dim] = w->type(vector).shape[0];
  return w->reshaped(what, vector, shape);
}

// ---- softmax

struct SoftmaxForm {
  size_t dim = 0;
  double temperature = 1;
  bool negative = false, logarithm = false;
};

// The shift may be any number: it passes no gradient on.
Entry write_softmax(const Node& node, Entry data, const SoftmaxForm& form, PrimitiveWriter* w) {
  Entry x = w->cast("single", data, written_itemsize(w->type(data).itemsize));
  if (form.negative) x = w->by_element("negative", "negative", {}, {x});
  if (form.temperature != 1) {
    const std::string temperature = AttributeReader(node.attrs).text("temperature", "1");
    x = w->by_element("_div_scalar", "tempered", {{"scalar", temperature}}, {x});
  }
  const Entry value = w->by_element("BlockGrad", "value", {}, {x});
  const Entry shift = w->reduction("max", "max", value, {form.dim});
  const Entry shifted = w->by_element("broadcast_sub", "shifted", {}, {x, shift});
  const Entry powers = w->by_element("exp", "exp", {}, {shifted});
  const Entry sum = w->reduction("sum", "sum", powers, {form.dim});
  const Entry out = form.logarithm
                        ? w->by_element("broadcast_sub", "out", {}, {shifted, w->by_element("log", "log", {}, {sum})})
                        : w->by_element("broadcast_div", "out", {}, {powers, sum});
  return w->cast("cast", out, node.outputs[0].itemsize);
}

Entry softmax(const Node& node, const Entries& in, PrimitiveWriter* w) {
  AttributeReader attrs(node.attrs);
  SoftmaxForm form;
  form.dim = *axis_index(attrs.integer("axis", -1), w->type(in[0]).shape.size());
  if (attrs.text("temperature", "None") != "None") form.temperature = attrs.number("temperature", 1);
  form.negative = node.op == "softmin";
  form.logarithm = node.op == "log_softmax";
  return write_softmax(node, in[0], form, w);
}

// Along dim 1 in both of its modes, where it is cut along it.
Entry softmax_activation(const Node& node, const Entries& in, PrimitiveWriter* w) {
  SoftmaxForm form;
  form.dim = 1;
  return write_softmax(node, in[0], form, w);
}

// ---- normalizations

// (x - mean) / sqrt(var + eps) over the dims.
Entry standardized(Entry x, const DimList& dims, const std::string& eps, PrimitiveWriter* w) {
  const Entry centred = w->by_element("broadcast_sub", "centred", {}, {x, w->reduction("mean", "mean", x, dims)});
  const Entry squared = w->by_element("square", "squared", {}, {centred});
  const Entry shifted =
      w->by_element("_plus_scalar", "var_eps", {{"scalar", eps}}, {w->reduction("mean", "var", squared, dims)});
  return w->by_element("broadcast_mul", "standard", {}, {centred, w->by_element("rsqrt", "rstd", {}, {shifted})});
}

Entry scaled(Entry x, Entry gamma, Entry beta, size_t dim, PrimitiveWriter* w) {
  const size_t rank = w->type(x).shape.size();
  const int itemsize = w->type(x).itemsize;
  const Entry factor = as_row("gamma_row", w->cast("gamma_cast", gamma, itemsize), rank, dim, w);
  const Entry offset = as_row("beta_row", w->cast("beta_cast", beta, itemsize), rank, dim, w);
  return w->by_element("broadcast_add", "out", {}, {w->by_element("broadcast_mul", "scaled", {}, {x, factor}), offset});
}

Entry layer_norm(const Node& node, const Entries& in, PrimitiveWriter* w) {
  AttributeReader attrs(node.attrs);
  const size_t axis = *axis_index(attrs.integer("axis", -1), w->type(in[0]).shape.size());
  const Entry x = w->cast("single", in[0], written_itemsize(w->type(in[0]).itemsize));
  const Entry standard = standardized(x, {axis}, epsilon(node, 1e-5), w);
  return w->cast("cast", scaled(standard, in[1], in[2], axis, w), node.outputs[0].itemsize);
}

Entry instance_norm(const Node& node, const Entries& in, PrimitiveWriter* w) {
  const Entry x = w->cast("single", in[0], written_itemsize(w->type(in[0]).itemsize));
  const Entry standard = standardized(x, dims_from(2, w->type(x).shape.size()), epsilon(node, 1e-3), w);
  return w->cast("cast", scaled(standard, in[1], in[2], 1, w), node.outputs[0].itemsize);
}

// With the channels of a group in a dim of their own; gamma and beta are by group.
Entry group_norm(const Node& node, const Entries& in, PrimitiveWriter* w) {
  AttributeReader attrs(node.attrs);
  const Shape shape = w->type(in[0]).shape;
  const int64_t groups = attrs.integer("num_groups", 1);
  Shape apart = shape;
  apart[1] = shape[1] / groups;
  apart.insert(apart.begin() + 1, groups);
  const Entry x = w->cast("single", in[0], written_itemsize(w->type(in[0]).itemsize));
  const Entry standard = standardized(w->reshaped("groups", x, apart), dims_from(2, apart.size()),
                                      epsilon(node, 1e-5), w);
  const Entry out = w->reshaped("channels", scaled(standard, in[1], in[2], 1, w), shape);
  return w->cast("cast", out, node.outputs[0].itemsize);
}

Entry l2_normalization(const Node& node, const Entries& in, PrimitiveWriter* w) {
  AttributeReader attrs(node.attrs);
  const std::string mode = attrs.text("mode", "instance");
  const size_t rank = w->type(in[0]).shape.size();
  const DimList dims = mode == "channel" ? DimList{1} : dims_from(mode == "spatial" ? 2 : 1, rank);
  const Entry x = w->cast("single", in[0], written_itemsize(w->type(in[0]).itemsize));
  const Entry sum = w->reduction("sum", "sum", w->by_element("square", "squared", {}, {x}), dims);
  const Entry shifted = w->by_element("_plus_scalar", "sum_eps", {{"scalar", epsilon(node, 1e-10)}}, {sum});
  const Entry out = w->by_element("broadcast_mul", "out", {}, {x, w->by_element("rsqrt", "scale", {}, {shifted})});
  return w->cast("cast", out, node.outputs[0].itemsize);
}

// ---- reductions

Entry norm(const Node& node, const Entries& in, PrimitiveWriter* w) {
  const Shape& shape = w->type(in[0]).shape;
  const auto axes = AttributeReader(node.attrs).optional_integers("axis");
  DimList dims = dims_from(0, shape.size());
  if (axes && !axes->empty()) {
    const DimSet chosen = *axis_indices(*axes, shape.size());
    dims.assign(chosen.begin(), chosen.end());
  }
  const Entry x = w->cast("single", in[0], written_itemsize(w->type(in[0]).itemsize));
  const Entry sum = w->reduction("sum", "sum", w->by_element("square", "squared", {}, {x}), dims);
  const Entry out = w->reshaped("reduced", w->by_element("sqrt", "root", {}, {sum}), node.outputs[0].shape);
  return w->cast("cast", out, node.outputs[0].itemsize);
}

// The least index of those whose element is the extreme: to all others the extent is added.
Entry index_of_extreme(const Node& node, const Entries& in, PrimitiveWriter* w) {
  const Shape shape = w->type(in[0]).shape;
  const size_t axis = *axis_index(*AttributeReader(node.attrs).optional_integer("axis"), shape.size());
  const std::string extent = std::to_string(shape[axis]);
  const Entry extreme = w->reduction(node.op == "argmax" ? "max" : "min", "extreme",
                                     w->by_element("BlockGrad", "value", {}, {in[0]}), {axis});
  const Entry others = w->by_element("broadcast_not_equal", "others", {}, {in[0], extreme});
  const Entry behind = w->by_element("_mul_scalar", "behind", {{"scalar", extent}}, {others});
  const Entry index = w->add("_contrib_arange_like", "index", {{"axis", std::to_string(axis)}}, {in[0]}, {shape[axis]});
  const Entry row = as_row("index_row", index, shape.size(), axis, w);
  const Entry least = w->reduction("min", "least", w->by_element("broadcast_add", "indices", {}, {behind, row}), {axis});
  return w->reshaped("reduced", least, node.outputs[0].shape);
}

const std::map<std::string, Recipe>& recipes() {
  static const std::map<std::string, Recipe> all = {
      {"softmax", softmax},           {"log_softmax", softmax},     {"softmin", softmax},
      {"SoftmaxActivation", softmax_activation},
      {"LayerNorm", layer_norm},      {"InstanceNorm", instance_norm}, {"GroupNorm", group_norm},
      {"L2Normalization", l2_normalization},
      {"norm", norm},                 {"argmax", index_of_extreme}, {"argmin", index_of_extreme},
  };
  return all;
}

}  // namespace

Entry PrimitiveWriter::add(const std::string& op, const std::string& what, Attributes attrs, std::vector<Entry> inputs,
                           Shape shape) {
  Node node;
  node.op = op;
  node.name = name_ + "~" + what;
  node.attrs = std::move(attrs);
  node.outputs = {{std::move(shape), type(inputs[0]).itemsize}};
  node.inputs = std::move(inputs);
  nodes_.push_back(std::move(node));
  return {static_cast<int>(nodes_.size()) - 1, 0};
}

Entry PrimitiveWriter::by_element(const std::string& op, const std::string& what, Attributes attrs,
                                  std::vector<Entry> inputs) {
  Shape shape = type(inputs[0]).shape;
  return add(op, what, std::move(attrs), std::move(inputs), std::move(shape));
}

Entry PrimitiveWriter::reduction(const std::string& op, const std::string& what, Entry x,
                                 const std::vector<size_t>& dims) {
  Shape shape = type(x).shape;
  Shape axes;
  for (const size_t d : dims) {
    shape[d] = 1;
    axes.push_back(static_cast<int64_t>(d));
  }
  return add(op, what, {{"axis", shape_text(axes)}, {"keepdims", "True"}}, {x}, shape);
}

Entry PrimitiveWriter::reshaped(const std::string& what, Entry x, const Shape& shape) {
  return add("Reshape", what, {{"shape", shape_text(shape)}}, {x}, shape);
}

Entry PrimitiveWriter::cast(const std::string& what, Entry x, int itemsize) {
  if (type(x).itemsize == itemsize) return x;
  const Entry out = by_element("Cast", what, {{"dtype", float_name(itemsize)}}, {x});
  nodes_.back().outputs[0].itemsize = itemsize;
  return out;
}

Entry write_out(const Node& node, const std::vector<Entry>& inputs, PrimitiveWriter* writer) {
  const auto found = recipes().find(node.op);
  if (found == recipes().end()) {
    throw Error("operator '" + node.name + "' is cut along a dim over which it takes a statistic, but " + node.op +
                " cannot be written out");
  }
  return found->second(node, inputs, writer);
}

}  // namespace soybean
