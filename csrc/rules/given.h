// The rule of an operator of the user's, as it came with the graph (graph/given_rule.h).
#ifndef SOYBEAN_RULES_GIVEN_H_
#define SOYBEAN_RULES_GIVEN_H_

#include <vector>

#include "graph/given_rule.h"
#include "rules/rule.h"

namespace soybean {

// Unlike the rules of MXNet's operators, one that does not fit its node is an error: the user
// is to hear of it. Throws Error naming operator, rule and shape. `has_states`: whether an input
// is an auxiliary state, which each group would change on its own.
Rule given_rule(const GivenRule& given, const OperatorView& op, bool has_states);

}  // namespace soybean

#endif  // SOYBEAN_RULES_GIVEN_H_
