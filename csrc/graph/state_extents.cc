#include "graph/state_extents.h"

#include <map>
#include <optional>
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

}  // namespace

SerialProgram state_extents(SerialProgram program) {
  std::vector<Node> nodes = program.graph.nodes();
  std::map<Entry, int> uses;
  for (const Node& node : nodes) {
    for (const Entry& e : node.inputs) ++uses[e];
  }
  for (const Entry& e : program.graph.outputs()) ++uses[e];
  for (Node& node : nodes) {
    if (node.inputs.size() != 2 || node.outputs.size() != 1) continue;
    int& of_shape = uses[node.inputs[1]];
    if (of_shape < 2 || node.inputs[0] == node.inputs[1]) continue;
    auto stated = statement_of(node, program.graph.type(node.inputs[0]).shape);
    if (!stated) continue;
    --of_shape;
    node.op = std::move(stated->op);
    node.attrs = std::move(stated->attrs);
    node.inputs.pop_back();
  }
  program.graph = Graph(std::move(nodes), program.graph.outputs());
  return program;
}

}  // namespace soybean
