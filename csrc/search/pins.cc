#include "search/pins.h"

#include <algorithm>

namespace soybean {
namespace {

// Matches one character against "[abc]", "[a-c]" or "[!a]" at `at`, which moves
// behind it.
bool in_set(const std::string& pattern, size_t* at, char c) {
  size_t i = *at + 1;
  const bool negated = i < pattern.size() && pattern[i] == '!';
  if (negated) ++i;
  bool found = false;
  for (bool first = true; i < pattern.size() && (first || pattern[i] != ']'); ++i, first = false) {
    if (i + 2 < pattern.size() && pattern[i + 1] == '-' && pattern[i + 2] != ']') {
      found = found || (pattern[i] <= c && c <= pattern[i + 2]);
      i += 2;
    } else {
      found = found || pattern[i] == c;
    }
  }
  *at = i;
  return found != negated;
}

bool matches_from(const std::string& pattern, size_t p, const std::string& name, size_t n) {
  for (; p < pattern.size(); ++p) {
    if (pattern[p] == '*') {
      for (size_t i = n; i <= name.size(); ++i) {
        if (matches_from(pattern, p + 1, name, i)) return true;
      }
      return false;
    }
    if (n == name.size()) return false;
    if (pattern[p] == '[' && pattern.find(']', p + 2) != std::string::npos) {
      if (!in_set(pattern, &p, name[n])) return false;
    } else if (pattern[p] != '?' && pattern[p] != name[n]) {
      return false;
    }
    ++n;
  }
  return n == name.size();
}

bool is_split(const std::string& choice) { return choice.compare(0, 5, "split") == 0; }

// Notes each target's pin and refuses a second one that says something else.
class Resolution {
 public:
  Resolution(const Program& program, const Mesh& mesh) : program_(program), mesh_(mesh) {}

  void add(const Pin& pin) {
    bool found = false;
    const bool splits = std::any_of(pin.choices.begin(), pin.choices.end(), is_split);
    const auto& nodes = program_.graph().nodes();
    for (size_t i = 0; i < nodes.size(); ++i) {
      const int node = static_cast<int>(i);
      if (!nodes[i].is_variable() && !splits && matches(pin.pattern, nodes[i].name)) {
        found = true;
        pin_operator(pin, node);
        continue;
      }
      for (size_t k = 0; k < nodes[i].outputs.size(); ++k) {
        const Entry e{node, static_cast<int>(k)};
        if (!matches(pin.pattern, program_.graph().tensor_name(e))) continue;
        found = true;
        pin_tensor(pin, e);
      }
    }
    if (!found) throw Error("pin '" + pin.pattern + "' matches no tensor or operator of the graph: give one of their names, or a pattern with *");
  }

  ResolvedPins take() { return std::move(pins_); }

 private:
  std::vector<std::string> choices(const Pin& pin, const std::string& what) const {
    const size_t cuts = static_cast<size_t>(mesh_.cut_count());
    if (pin.every_cut) return std::vector<std::string>(cuts, pin.choices.at(0));
    if (pin.choices.size() != cuts) {
      throw Error(what + " has " + std::to_string(pin.choices.size()) + " choices for " +
                  std::to_string(cuts) + " cuts");
    }
    return pin.choices;
  }

  void pin_operator(const Pin& pin, int node) {
    const std::string what = "pinned operator '" + program_.graph().node(node).name + "' (pin '" + pin.pattern + "')";
    const Rule& rule = program_.rules[static_cast<size_t>(node)];
    std::vector<int> cuts, order;
    for (std::string text : choices(pin, what)) {
      const int level = take_level(&text);
      order.push_back(level >= 0 ? level : 1000 - static_cast<int>(order.size()));
      cuts.push_back(parse_operator_choice(rule, text, what));
    }
    const OperatorCuts value(std::move(cuts), order);
    check_operator(mesh_, rule, value, what);
    note(pin, "operator '" + program_.graph().node(node).name + "'", value, node, &pins_.operators);
  }

  void pin_tensor(const Pin& pin, Entry e) {
    const std::string name = program_.graph().tensor_name(e);
    const std::string what = "pinned tensor '" + name + "' (pin '" + pin.pattern + "')";
    const Tiling value = parse_tiling(choices(pin, what), what);
    check_tensor(program_, mesh_, e, value, what);
    note(pin, "tensor '" + name + "'", value, e, &pins_.tensors);
  }

  template <typename Key>
  void note(const Pin& pin, const std::string& what, const Division& value, Key key,
            std::map<Key, Division>* to) {
    const auto [it, fresh] = to->emplace(key, value);
    const std::string id = what;
    if (fresh) {
      pattern_of_[id] = pin.pattern;
    } else if (it->second != value) {
      throw Error(what + " is pinned by '" + pattern_of_[id] + "' and differently by '" +
                  pin.pattern + "': drop one of them or let them agree");
    }
  }

  const Program& program_;
  const Mesh& mesh_;
  ResolvedPins pins_;
  std::map<std::string, std::string> pattern_of_;
};

}  // namespace

bool matches(const std::string& pattern, const std::string& name) {
  return pattern == name || matches_from(pattern, 0, name, 0);
}

std::vector<Pin> read_pins(const Json& json) {
  std::vector<Pin> pins;
  for (const auto& [pattern, value] : json.as_object("option pins")) {
    const std::string what = "pin '" + pattern + "'";
    Pin pin{pattern, {}, value.is_string()};
    if (pin.every_cut) {
      pin.choices.push_back(value.as_string(what));
    } else {
      for (const Json& item : value.as_array(what)) pin.choices.push_back(item.as_string(what));
    }
    pins.push_back(std::move(pin));
  }
  return pins;
}

ResolvedPins resolve(const Program& program, const Mesh& mesh, const std::vector<Pin>& pins) {
  Resolution resolution(program, mesh);
  for (const Pin& pin : pins) resolution.add(pin);
  return resolution.take();
}

}  // namespace soybean
