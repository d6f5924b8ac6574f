// A rule as JSON, in the form that docs/interface.md gives SoybeanRules.
#ifndef SOYBEAN_RULES_RULE_JSON_H_
#define SOYBEAN_RULES_RULE_JSON_H_

#include <string>

#include "rules/rule.h"

namespace soybean {

std::string rule_json(const Rule& rule);

}  // namespace soybean

#endif  // SOYBEAN_RULES_RULE_JSON_H_
