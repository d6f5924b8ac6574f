#include "graph/given_rule.h"

#include "graph/graph.h"

namespace soybean {
namespace {

std::vector<GivenRule::Operand> read_operands(const Json& json, const std::string& what) {
  std::vector<GivenRule::Operand> operands;
  for (const Json& item : json.as_array(what)) {
    GivenRule::Operand operand;
    operand.name = item.at("name", what).as_string("the name in " + what);
    for (const Json& dim : item.at("dims", what).as_array("the dims in " + what)) {
      operand.dims.push_back(dim.as_string("a dim in " + what));
    }
    operand.addend = item.at("addend", what).as_bool("addend in " + what);
    operands.push_back(std::move(operand));
  }
  return operands;
}

}  // namespace

GivenRule read_given_rule(const Json& json, const std::string& node) {
  const std::string what = "the rule of '" + node + "'";
  GivenRule rule;
  rule.op = json.at("op", what).as_string("op in " + what);
  rule.text = json.at("text", what).as_string("the text of " + what);
  rule.inputs = read_operands(json.at("inputs", what), "the inputs of " + what);
  rule.outputs = read_operands(json.at("outputs", what), "the outputs of " + what);
  for (const auto& [attribute, extent] : json.at("extents", what).as_object("extents in " + what)) {
    rule.extents[attribute] = {extent.at("factor", what).as_string("a factor in " + what),
                               extent.at("block", what).as_int("a block in " + what)};
  }
  for (const auto& [attribute, output] : json.at("shapes", what).as_object("shapes in " + what)) {
    rule.shapes[attribute] = output.as_string("an output in " + what);
  }
  for (const Json& name : json.at("constants", what).as_array("constants in " + what)) {
    rule.constants.insert(name.as_string("a constant in " + what));
  }
  rule.join = json.at("join", what).as_string("join in " + what);
  rule.once = json.at("once", what).as_bool("once in " + what);
  return rule;
}

}  // namespace soybean
