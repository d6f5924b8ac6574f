// A rule that comes with the graph: how an operator of the user's may be cut.
//
// It is what the user wrote (soybean_mx/rules.py), operand by operand; rules/given.h makes a
// Rule of it for the shapes of a node.
#ifndef SOYBEAN_GRAPH_GIVEN_RULE_H_
#define SOYBEAN_GRAPH_GIVEN_RULE_H_

#include <map>
#include <set>
#include <string>
#include <vector>

#include "graph/json.h"

namespace soybean {

struct GivenRule {
  // In place of a factor's name: a dim that every group has all of, and any number of dims, each
  // a factor of its own.
  static constexpr const char* kWholeDim = "*";
  static constexpr const char* kFurtherDims = "...";

  struct Operand {
    std::string name;
    std::vector<std::string> dims;
    bool addend = false;  // TensorRule::addend
  };
  // An attribute that states the extent of a factor, times `block`.
  struct Extent {
    std::string factor;
    int64_t block = 1;
  };

  std::string op;    // the operator's name, and the rule as it was written: for messages
  std::string text;
  std::vector<Operand> inputs, outputs;
  std::map<std::string, Extent> extents;       // by attribute
  std::map<std::string, std::string> shapes;   // attribute -> the output whose shape it states
  std::set<std::string> constants;             // attributes with whole numbers that are no extents
  std::string join = "sum";                    // what outputs are over factors that they do not carry
  bool once = false;                           // Rule::random
};

// Throws Error where a member is missing or of another kind.
GivenRule read_given_rule(const Json& json, const std::string& node);

}  // namespace soybean

#endif  // SOYBEAN_GRAPH_GIVEN_RULE_H_
