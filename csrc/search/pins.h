// Pins: tilings of tensors and cuts of operators that the user fixes, by name.
//
// A pin is a shell pattern on names (*, ?, [abc]) and the choices: for tensors
// "split 0", "replicated", "owner"; for operators a factor of the rule,
// "replicated" or "owner"; one per cut, or one for all cuts. A name of an operator
// is also the name of its output: choices with "split" mean the tensor.
#ifndef SOYBEAN_SEARCH_PINS_H_
#define SOYBEAN_SEARCH_PINS_H_

#include <map>
#include <string>
#include <vector>

#include "search/plan.h"

namespace soybean {

struct Pin {
  std::string pattern;
  std::vector<std::string> choices;  // one per cut
  bool every_cut = false;            // `choices` is one, meant for every cut
};

std::vector<Pin> read_pins(const Json& json);

struct ResolvedPins {
  std::map<Entry, Tiling> tensors;
  std::map<int, OperatorCuts> operators;
};

// What the pins fix. Throws Error naming the pins: for a pattern that matches
// nothing, for choices that do not fit, for two pins that contradict.
ResolvedPins resolve(const Program& program, const Mesh& mesh, const std::vector<Pin>& pins);

// Whether a name matches a shell pattern.
bool matches(const std::string& pattern, const std::string& name);

}  // namespace soybean

#endif  // SOYBEAN_SEARCH_PINS_H_
