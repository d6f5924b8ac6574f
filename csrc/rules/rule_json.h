// A rule as JSON, for tests and reports:
//
//     {"known": true,
//      "factors": [{"name": "n", "size": 32, "reduced": false, "even": false, "batch": true}, ...],
//      "inputs": [{"dims": [0, 2], "addend": false}, ...],    factor index per dim, -1 for a whole dim
//      "outputs": [{"dims": [0, 1], "addend": false}],
//      "extent_attrs": {"num_hidden": {"factor": 1, "block": 1}},
//      "shape_attrs": {"shape": {"output": 0, "begin": 0, "behind": 0}},
//      "restated": {"axis": "(1, )"},
//      "without_addends": {"no_bias": "True"},
//      "average": false, "random": false}
#ifndef SOYBEAN_RULES_RULE_JSON_H_
#define SOYBEAN_RULES_RULE_JSON_H_

#include <string>

#include "rules/rule.h"

namespace soybean {

std::string rule_json(const Rule& rule);

}  // namespace soybean

#endif  // SOYBEAN_RULES_RULE_JSON_H_
