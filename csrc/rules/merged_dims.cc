#include "rules/merged_dims.h"

#include <algorithm>
#include <optional>
#include <set>
#include <utility>

#include "rules/attributes.h"
#include "rules/families.h"
#include "rules/rule_builder.h"

namespace soybean {
namespace {

// Dim 0 of a tensor, as the two dims that it was merged from.
struct Parts {
  int64_t outer, inner;
  int64_t product() const { return outer * inner; }
};
bool operator==(const Parts& a, const Parts& b) { return a.outer == b.outer && a.inner == b.inner; }

// No value where there is nothing to take apart, or the product is no extent.
std::optional<Parts> parts_of(int64_t outer, int64_t inner) {
  int64_t product;
  if (outer < 2 || inner < 2 || __builtin_mul_overflow(outer, inner, &product)) return std::nullopt;
  return Parts{outer, inner};
}

// A tensor of the serial graph in the graph that is being built: with dim 0 as it
// was, with dim 0 in its parts, or both.
struct Forms {
  Entry merged;
  Entry separate;
  Parts parts{1, 1};
  bool has_merged = false, has_separate = false;
};

Shape with_parts(const Shape& shape, Parts parts) {
  Shape out = {parts.outer, parts.inner};
  out.insert(out.end(), shape.begin() + 1, shape.end());
  return out;
}

bool is_reshape(const std::string& op) {
  return op == "Reshape" || op == "_np_reshape" || op == "_npx_reshape";
}

// An axis that is not dim 0, as the operator with one dim more in front has it.
std::optional<std::string> shifted_axis(int64_t axis, size_t rank) {
  const auto dim = axis_index(axis, rank);
  if (!dim || *dim == 0) return std::nullopt;
  return std::to_string(*dim + 1);
}

// What an operator does with dim 0.
enum class Kind {
  kOther,      // something that it would not do with two dims
  kAlike,      // all operands have it, and each index of it is for itself
  kBroadcast,  // the same, but an operand may be repeated along it
  kIgnored     // only the data has it; the output is the same without
};

// The operators that mean the same with one dim more, and the attributes that say so.
class Separation {
 public:
  // `types` of the inputs; `attrs` are changed where they count dims.
  Separation(const Node& node, const std::vector<TensorType>& types)
      : node_(node), types_(types), attrs_(node.attrs) {}

  Kind kind() {
    const std::string& op = node_.op;
    if (types_.empty() || types_[0].shape.empty()) return Kind::kOther;
    if (is_elementwise(op)) return Kind::kAlike;
    if (is_broadcasting(op)) return Kind::kBroadcast;
    if (op == "batch_dot" || op == "_contrib_div_sqrt_dim" || op == "where") return same_ranks();
    if (op == "_linalg_gemm2") return attrs_.count("axis") == 0 ? same_ranks() : Kind::kOther;
    if (op == "Dropout") {
      return attrs_.count("axes") == 0 || attrs_["axes"] == "()" ? Kind::kAlike : Kind::kOther;
    }
    if (op == "LeakyReLU") return types_.size() == 1 ? Kind::kAlike : Kind::kOther;
    if (op == "softmax" || op == "log_softmax" || op == "softmin") {
      return axis_kind("axis", -1, 0, Kind::kAlike);
    }
    if (op == "slice_axis") return axis_kind("axis", 0, 0, Kind::kAlike);
    if (op == "expand_dims") return axis_kind("axis", 0, 1, Kind::kAlike);
    if (op == "_contrib_arange_like") return axis_kind("axis", 0, 0, Kind::kIgnored);
    if (op == "transpose") return transpose_kind();
    if (op == "SwapAxis") {
      const Kind kind = axis_kind("dim1", 0, 0, Kind::kAlike);
      return kind == Kind::kAlike ? axis_kind("dim2", 0, 0, kind) : kind;
    }
    return Kind::kOther;
  }

  const Attributes& attrs() const { return attrs_; }

 private:
  Kind same_ranks() const {
    for (const TensorType& type : types_) {
      if (type.shape.size() != types_[0].shape.size()) return Kind::kOther;
    }
    return Kind::kAlike;
  }

  // An attribute that names one dim. `added`: how many dims more the output has.
  Kind axis_kind(const char* name, int64_t fallback, size_t added, Kind kind) {
    AttributeReader reader(node_.attrs);
    const auto axis =
        reader.has(name) ? reader.optional_integer(name) : std::optional<int64_t>(fallback);
    if (reader.failed() || !axis) return Kind::kOther;
    const auto shifted = shifted_axis(*axis, types_[0].shape.size() + added);
    if (!shifted) return Kind::kOther;
    attrs_[name] = *shifted;
    return kind;
  }

  // Dim 0 must stay in front.
  Kind transpose_kind() {
    AttributeReader reader(node_.attrs);
    const Integers axes = reader.integers("axes");
    const size_t rank = types_[0].shape.size();
    if (reader.failed() || axes.size() != rank) return Kind::kOther;
    if (axis_index(axes[0], rank) != size_t{0}) return Kind::kOther;
    std::string text = "(0, 1";
    for (size_t d = 1; d < rank; ++d) {
      const auto shifted = shifted_axis(axes[d], rank);
      if (!shifted) return Kind::kOther;
      text += ", " + *shifted;
    }
    attrs_["axes"] = text + ")";
    return Kind::kAlike;
  }

  const Node& node_;
  const std::vector<TensorType>& types_;
  Attributes attrs_;
};

// Copies a graph node by node.
class Separator {
 public:
  explicit Separator(const SerialProgram& program)
      : program_(program), serial_(program.graph), names_(node_names(serial_)) {}

  SerialProgram run() {
    for (const Node& node : serial_.nodes()) {
      forms_.emplace_back(node.outputs.size());
      if (!merges(node) && !separates(node) && !scores(node) && !weighs(node) && !goes_along(node)) {
        copy(node);
      }
    }
    std::vector<Entry> outputs;
    for (const Entry& e : serial_.outputs()) outputs.push_back(merged(e));
    return {Graph(std::move(nodes_), std::move(outputs)), program_.training, program_.own_operators};
  }

 private:
  Forms& forms(Entry e) { return forms_[static_cast<size_t>(e.node)][static_cast<size_t>(e.index)]; }
  Forms& own_forms(size_t output) { return forms_.back()[output]; }

  Entry append(Node node) {
    nodes_.push_back(std::move(node));
    return {static_cast<int>(nodes_.size()) - 1, 0};
  }

  Entry reshape(Entry from, Shape shape, const std::string& name) {
    Node node;
    node.op = "Reshape";
    node.name = fresh_name(name, &names_);
    node.attrs = {{"shape", shape_text(shape)}};
    node.inputs = {from};
    const Node& source = nodes_[static_cast<size_t>(from.node)];
    node.outputs = {{std::move(shape), source.outputs[static_cast<size_t>(from.index)].itemsize}};
    return append(std::move(node));
  }

  std::string tensor_name(Entry e) const {
    return serial_.node(e.node).name + (e.index > 0 ? std::to_string(e.index) : "");
  }

  Entry merged(Entry e) {
    Forms& f = forms(e);
    if (!f.has_merged) {
      f.merged = reshape(f.separate, serial_.type(e).shape, tensor_name(e) + "~merged");
      f.has_merged = true;
    }
    return f.merged;
  }

  Entry separate(Entry e, Parts parts) {
    Forms& f = forms(e);
    if (f.has_separate && f.parts == parts) return f.separate;
    const Entry made = reshape(merged(e), with_parts(serial_.type(e).shape, parts),
                               tensor_name(e) + "~separate");
    if (!f.has_separate) {
      f.separate = made;
      f.parts = parts;
      f.has_separate = true;
    }
    return made;
  }

  void copy(const Node& node) {
    Node copied = node;
    for (Entry& e : copied.inputs) e = merged(e);
    const int index = append(std::move(copied)).node;
    for (size_t i = 0; i < node.outputs.size(); ++i) {
      own_forms(i).merged = {index, static_cast<int>(i)};
      own_forms(i).has_merged = true;
    }
  }

  // Takes the node as one whose outputs have dim 0 in these parts.
  void set_separate(Node node, Parts parts) {
    const size_t count = node.outputs.size();
    for (TensorType& type : node.outputs) type.shape = with_parts(type.shape, parts);
    const int index = append(std::move(node)).node;
    for (size_t i = 0; i < count; ++i) {
      own_forms(i).separate = {index, static_cast<int>(i)};
      own_forms(i).parts = parts;
      own_forms(i).has_separate = true;
    }
  }

  bool is_plain_reshape(const Node& node) const {
    return is_reshape(node.op) && node.inputs.size() == 1 && node.outputs.size() == 1 &&
           (node.attrs.count("order") == 0 || node.attrs.at("order") == "C");
  }

  // A reshape (N, H, ...) -> (N * H, ...): its input is its output in parts.
  bool merges(const Node& node) {
    if (!is_plain_reshape(node)) return false;
    const Shape& in = serial_.type(node.inputs[0]).shape;
    const Shape& out = node.outputs[0].shape;
    if (in.size() < 3 || out.empty()) return false;
    const auto parts = parts_of(in[0], in[1]);
    if (!parts || out[0] != parts->product() || with_parts(out, *parts) != in) return false;
    Forms& own = own_forms(0);
    own.separate = merged(node.inputs[0]);
    own.parts = *parts;
    own.has_separate = true;
    return true;
  }

  // A reshape back: its output is its input in parts.
  bool separates(const Node& node) {
    if (!is_plain_reshape(node)) return false;
    const Forms& in = forms(node.inputs[0]);
    if (!in.has_separate) return false;
    const Shape& shape = serial_.type(node.inputs[0]).shape;
    if (node.outputs[0].shape != with_parts(shape, in.parts)) return false;
    own_forms(0).merged = in.separate;
    own_forms(0).has_merged = true;
    return true;
  }

  // Interleaved operators whose output is scores (N * H, queries, keys).
  bool scores(const Node& node) {
    if (!is_interleaved_scores(node.op) || node.outputs.size() != 1) return false;
    const auto parts = interleaved_parts(node);
    if (!parts || node.outputs[0].shape[0] != parts->product()) return false;
    Node copied = node;
    for (Entry& e : copied.inputs) e = merged(e);
    set_separate(std::move(copied), *parts);
    return true;
  }

  // Those with weights (N * H, queries, keys) as their second input.
  bool weighs(const Node& node) {
    if (!is_interleaved_context(node.op) || node.inputs.size() != 2) return false;
    const auto parts = interleaved_parts(node);
    if (!parts || serial_.type(node.inputs[1]).shape[0] != parts->product()) return false;
    Node copied = node;
    copied.inputs = {merged(node.inputs[0]), separate(node.inputs[1], *parts)};
    const int index = append(std::move(copied)).node;
    own_forms(0).merged = {index, 0};
    own_forms(0).has_merged = true;
    return true;
  }

  // The batch and the heads, where both are more than one.
  std::optional<Parts> interleaved_parts(const Node& node) const {
    AttributeReader attrs(node.attrs);
    const int64_t heads = attrs.integer("heads");
    const Shape& data = serial_.type(node.inputs[0]).shape;
    if (attrs.failed() || data.size() != 3) return std::nullopt;
    for (const TensorType& type : node.outputs) {
      if (type.shape.size() != 3) return std::nullopt;
    }
    for (const Entry& e : node.inputs) {
      if (serial_.type(e).shape.size() != 3) return std::nullopt;
    }
    return parts_of(data[1], heads);
  }

  // An operator between the two reshapes.
  bool goes_along(const Node& node) {
    const auto given = std::find_if(node.inputs.begin(), node.inputs.end(),
                                    [this](Entry e) { return forms(e).has_separate; });
    if (given == node.inputs.end()) return false;
    const Parts parts = forms(*given).parts;
    std::vector<TensorType> types;
    for (const Entry& e : node.inputs) types.push_back(serial_.type(e));
    Separation separation(node, types);
    const Kind kind = separation.kind();
    if (kind == Kind::kOther || !dims_go_along(node, kind, types, parts)) return false;
    Node changed = node;
    changed.attrs = separation.attrs();
    for (size_t i = 0; i < node.inputs.size(); ++i) changed.inputs[i] = operand(node, i, kind, parts);
    if (kind != Kind::kIgnored) {
      set_separate(std::move(changed), parts);
      return true;
    }
    own_forms(0).merged = append(std::move(changed));
    own_forms(0).has_merged = true;
    return true;
  }

  bool dims_go_along(const Node& node, Kind kind, const std::vector<TensorType>& types,
                     Parts parts) const {
    const auto leads = [&](const TensorType& type) {
      return !type.shape.empty() && type.shape[0] == parts.product();
    };
    if (kind == Kind::kIgnored) return types.size() == 1 && node.outputs.size() == 1;
    if (!std::all_of(node.outputs.begin(), node.outputs.end(), leads)) return false;
    if (kind == Kind::kAlike) return std::all_of(types.begin(), types.end(), leads);
    const size_t rank = node.outputs[0].shape.size();
    return std::all_of(types.begin(), types.end(), [&](const TensorType& type) {
      return type.shape.size() < rank || leads(type) || type.shape[0] == 1;
    });
  }

  Entry operand(const Node& node, size_t i, Kind kind, Parts parts) {
    const Entry e = node.inputs[i];
    const Shape& shape = serial_.type(e).shape;
    if (kind == Kind::kBroadcast) {
      // Shorter ones are aligned at the last dim.
      if (shape.size() < node.outputs[0].shape.size()) return merged(e);
      if (shape[0] == 1) {
        const std::string name = node.name + "~operand" + std::to_string(i);
        return reshape(merged(e), with_parts(shape, {1, 1}), name);
      }
    }
    return separate(e, parts);
  }

  const SerialProgram& program_;
  const Graph& serial_;
  std::set<std::string> names_;
  std::vector<Node> nodes_;
  std::vector<std::vector<Forms>> forms_;  // by serial node and output
};

}  // namespace

SerialProgram separate_merged_dims(const SerialProgram& program) { return Separator(program).run(); }

}  // namespace soybean
