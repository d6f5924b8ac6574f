#include "graph/state_extents.h"

#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace soybean {
namespace {

// An operator of one operand, in place of one with two.
struct Statement {
  std::string op;
  Attributes attrs;
};

// `attrs` as far as they are named.
Attributes kept(const Attributes& attrs, const std::vector<std::string>& names) {
  Attributes found;
  for (const std::string& name : names) {
    const auto attr = attrs.find(name);
    if (attr != attrs.end()) found.insert(*attr);
  }
  return found;
}

std::string text_of(const Attributes& attrs, const std::string& name) {
  const auto found = attrs.find(name);
  return found == attrs.end() ? "" : found->second;
}

// The first elements along the dims that are shortened, all of the others.
Statement slice_to(const Shape& in, const Shape& out) {
  std::string begin, end;
  for (size_t d = 0; d < in.size(); ++d) {
    const std::string separator = d == 0 ? "(" : ", ";
    begin += separator + (in[d] == out[d] ? "None" : "0");
    end += separator + (in[d] == out[d] ? "None" : std::to_string(out[d]));
  }
  const std::string last = in.size() == 1 ? ",)" : ")";
  return {"slice", {{"begin", begin + last}, {"end", end + last}}};
}

// No value where the operator does not read a shape only.
std::optional<Statement> statement_of(const Node& node, const Shape& in) {
  const Shape& out = node.outputs[0].shape;
  const bool same_rank = in.size() == out.size() && !in.empty();
  if (node.op == "slice_like" && same_rank) return slice_to(in, out);
  if (node.op == "broadcast_like" && same_rank) return Statement{"broadcast_to", {{"shape", shape_text(out)}}};
  if (node.op == "reshape_like" && !out.empty()) return Statement{"Reshape", {{"shape", shape_text(out)}}};
  if (!same_rank || in.size() != 4) return std::nullopt;
  if (node.op == "Crop") {
    Attributes attrs = kept(node.attrs, {"offset", "center_crop"});
    attrs["num_args"] = "1";
    attrs["h_w"] = shape_text({out[2], out[3]});
    return Statement{"Crop", attrs};
  }
  if (node.op == "_contrib_BilinearResize2D" && text_of(node.attrs, "mode") == "like") {
    Attributes attrs = kept(node.attrs, {"align_corners"});
    attrs["height"] = std::to_string(out[2]);
    attrs["width"] = std::to_string(out[3]);
    return Statement{node.op, attrs};
  }
  return std::nullopt;
}

// Copies a graph node by node, without the operands that give a shape only.
class Copy {
 public:
  explicit Copy(const Graph& serial) : serial_(serial), names_(node_names(serial)) {
    for (const Node& node : serial.nodes()) {
      for (const Entry& e : node.inputs) ++uses_[e];
    }
    for (const Entry& e : serial.outputs()) ++uses_[e];
  }

  Graph run() {
    for (const Node& node : serial_.nodes()) {
      Node copy = node;
      for (Entry& e : copy.inputs) e = moved(e);
      if (node.inputs.size() == 2 && node.outputs.size() == 1) state(node, &copy);
      position_.push_back(static_cast<int>(nodes_.size()));
      nodes_.push_back(std::move(copy));
    }
    std::vector<Entry> outputs;
    for (const Entry& e : serial_.outputs()) outputs.push_back(moved(e));
    return Graph(std::move(nodes_), std::move(outputs));
  }

 private:
  Entry moved(Entry e) const { return {position_[static_cast<size_t>(e.node)], e.index}; }

  void state(const Node& node, Node* copy) {
    auto stated = statement_of(node, serial_.type(node.inputs[0]).shape);
    if (!stated) return;
    int& uses = uses_[node.inputs[1]];
    if (uses == 1) {
      copy->inputs[1] = without_gradient(*copy);
      return;
    }
    --uses;
    copy->op = std::move(stated->op);
    copy->attrs = std::move(stated->attrs);
    copy->inputs.pop_back();
  }

  Entry without_gradient(const Node& user) {
    const Entry e = user.inputs[1];
    Node node;
    node.op = "BlockGrad";
    node.name = fresh_name(user.name + "_like", &names_);
    node.inputs = {e};
    node.outputs = {nodes_[static_cast<size_t>(e.node)].outputs[static_cast<size_t>(e.index)]};
    nodes_.push_back(std::move(node));
    return {static_cast<int>(nodes_.size()) - 1, 0};
  }

  const Graph& serial_;
  std::map<Entry, int> uses_;
  std::set<std::string> names_;
  std::vector<Node> nodes_;
  std::vector<int> position_;  // by serial node
};

}  // namespace

SerialProgram state_extents(SerialProgram program) {
  program.graph = Copy(program.graph).run();
  return program;
}

}  // namespace soybean
