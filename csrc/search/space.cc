#include "search/space.h"

#include <algorithm>
#include <functional>
#include <numeric>
#include <set>

namespace soybean {
namespace {

// A tensor is small when cutting it saves nothing that a person would notice
// and costs a message: below this, and below a 256th of the largest tensor.
constexpr int64_t kSmallBytes = 64 * 1024;
constexpr int64_t kSmallFraction = 256;

// Calls `visit` with every sequence of one choice per cut.
void for_each_sequence(int cuts, const std::vector<int>& choices,
                       const std::function<bool(const std::vector<int>&)>& keep_prefix,
                       const std::function<void(const std::vector<int>&)>& visit) {
  std::vector<int> sequence;
  const std::function<void()> extend = [&] {
    if (static_cast<int>(sequence.size()) == cuts) {
      visit(sequence);
      return;
    }
    for (const int choice : choices) {
      sequence.push_back(choice);
      if (keep_prefix(sequence)) extend();
      sequence.pop_back();
    }
  };
  extend();
}

// How many parts the cuts make of each factor.
std::vector<int64_t> factor_parts(const Mesh& mesh, const Rule& rule, const OperatorCuts& cuts) {
  std::vector<int64_t> parts(rule.factors.size(), 1);
  for (size_t i = 0; i < cuts.size(); ++i) {
    if (cuts[i] >= 0) parts[static_cast<size_t>(cuts[i])] *= mesh.parts(static_cast<int>(i));
  }
  return parts;
}

bool divisible(const Factor& f, int64_t parts) {
  return parts <= f.size && (!f.even || f.size % parts == 0);
}

}  // namespace

Space::Space(const Program& program, const Mesh& mesh, const SpaceOptions& options)
    : program_(program), mesh_(mesh), options_(options), results_(program.results()) {
  for (const Node& node : graph().nodes()) {
    for (const TensorType& type : node.outputs) largest_ = std::max(largest_, byte_count(type));
  }
  find_uses();
  find_useful_factors();
  for (const auto& [name, tiling] : options_.pins) {
    const std::string what = "pinned tensor '" + name + "'";
    const auto& nodes = graph().nodes();
    const auto it = std::find_if(nodes.begin(), nodes.end(), [&name = name](const Node& n) {
      return n.is_variable() && n.name == name;
    });
    if (it == nodes.end()) throw Error(what + " is not a variable of the graph");
    if (static_cast<int>(tiling.size()) != mesh_.cut_count()) {
      throw Error(what + " has " + std::to_string(tiling.size()) + " choices for " +
                  std::to_string(mesh_.cut_count()) + " cuts");
    }
    if (!fits(mesh_, tiling, it->outputs[0].shape)) {
      throw Error(what + " of shape " + shape_text(it->outputs[0].shape) +
                  " is split on a dim that it does not have or that is too short");
    }
  }
}

const std::vector<Use>& Space::uses(Entry e) const {
  static const std::vector<Use> none;
  const auto it = uses_.find(e);
  return it == uses_.end() ? none : it->second;
}

void Space::find_uses() {
  for (size_t i = 0; i < graph().nodes().size(); ++i) {
    const Node& node = graph().nodes()[i];
    for (size_t k = 0; k < node.inputs.size(); ++k) {
      uses_[node.inputs[k]].push_back({static_cast<int>(i), k});
    }
  }
  for (size_t r = 0; r < results_.size(); ++r) uses_[results_[r]].push_back({-1, r});
}

// A factor is useful when it is tied, through the tensors, to a factor of an
// operator with a weight (a parameter of two dims or more): only there does a
// choice decide what must be communicated. The height and width of images, say,
// run from pooling to pooling and never meet a weight; trying to cut them costs
// time and finds nothing. An operator without useful factors keeps all of its
// own.
void Space::find_useful_factors() {
  std::vector<size_t> first(graph().nodes().size() + 1, 0);
  for (size_t i = 0; i < program_.rules.size(); ++i) {
    first[i + 1] = first[i] + program_.rules[i].factors.size();
  }
  std::vector<size_t> parent(first.back());
  std::iota(parent.begin(), parent.end(), size_t{0});
  const auto root = [&](size_t x) {
    while (parent[x] != x) x = parent[x] = parent[parent[x]];
    return x;
  };
  std::map<std::pair<Entry, size_t>, size_t> seen;  // a tensor's dim -> a factor along it
  const auto tie = [&](size_t node, Entry e, const std::vector<int>& dims) {
    for (size_t d = 0; d < dims.size(); ++d) {
      if (dims[d] == kWhole) continue;
      const size_t factor = first[node] + static_cast<size_t>(dims[d]);
      const auto [it, fresh] = seen.emplace(std::make_pair(e, d), factor);
      if (!fresh) parent[root(factor)] = root(it->second);
    }
  };
  std::set<size_t> anchors;
  for (size_t i = 0; i < program_.rules.size(); ++i) {
    const Rule& rule = program_.rules[i];
    const Node& node = graph().nodes()[i];
    if (!rule.known) continue;
    for (size_t k = 0; k < rule.inputs.size(); ++k) {
      tie(i, node.inputs[k], rule.inputs[k].dims);
      const Node& source = graph().node(node.inputs[k].node);
      const bool weight = source.is_variable() && source.role == Role::kParameter &&
                          source.outputs[0].shape.size() >= 2;
      for (size_t f = first[i]; weight && f < first[i + 1]; ++f) anchors.insert(f);
    }
    for (size_t k = 0; k < rule.outputs.size(); ++k) {
      tie(i, Entry{static_cast<int>(i), static_cast<int>(k)}, rule.outputs[k].dims);
    }
  }
  std::set<size_t> roots;
  for (const size_t f : anchors) roots.insert(root(f));
  for (size_t i = 0; i < program_.rules.size(); ++i) {
    std::vector<bool> useful;
    for (size_t f = first[i]; f < first[i + 1]; ++f) useful.push_back(roots.count(root(f)) > 0);
    if (std::count(useful.begin(), useful.end(), true) == 0) useful.assign(useful.size(), true);
    useful_.push_back(std::move(useful));
  }
}

bool Space::is_small(Entry e) const {
  const int64_t bytes = byte_count(graph().type(e));
  return bytes <= kSmallBytes && bytes <= largest_ / kSmallFraction;
}

bool Space::is_fixed(Entry e) const {
  if (!graph().node(e.node).is_variable()) return false;
  const std::vector<Use>& all = uses(e);
  return std::any_of(all.begin(), all.end(), [&](const Use& use) {
    return use.node >= 0 && takes_variable_only(graph(), use.node, use.input);
  });
}

// Whether only operators without a rule use the tensor: it may as well be where
// they are.
bool Space::is_used_whole(Entry e) const {
  const std::vector<Use>& all = uses(e);
  return !all.empty() && std::all_of(all.begin(), all.end(), [&](const Use& use) {
    return use.node >= 0 && !program_.rules[static_cast<size_t>(use.node)].known;
  });
}

// Operators that may be left uncut although they could be cut: small ones, and
// those whose variables are changed in place.
bool Space::may_be_whole(int node) const {
  const Node& n = graph().node(node);
  if (options_.free_operators) return true;
  bool small = true;
  for (const Entry& e : n.inputs) {
    if (is_fixed(e)) return true;
    small = small && is_small(e);
  }
  for (size_t k = 0; k < n.outputs.size(); ++k) {
    small = small && is_small({node, static_cast<int>(k)});
  }
  return small;
}

std::vector<OperatorCuts> Space::operator_cuts(int node) const {
  const Rule& rule = program_.rules[static_cast<size_t>(node)];
  const OperatorCuts alone(static_cast<size_t>(mesh_.cut_count()), kOwner);
  if (!rule.known) return {alone};

  std::vector<int> choices;
  for (size_t f = 0; f < rule.factors.size(); ++f) {
    if (useful_[static_cast<size_t>(node)][f] || options_.free_operators) {
      choices.push_back(static_cast<int>(f));
    }
  }
  const std::vector<int> factors = choices;
  if (!rule.random) choices.push_back(kReplicated);
  choices.push_back(kOwner);

  const auto legal = [&](const OperatorCuts& cuts) {
    const std::vector<int64_t> parts = factor_parts(mesh_, rule, cuts);
    for (size_t f = 0; f < parts.size(); ++f) {
      if (!divisible(rule.factors[f], parts[f])) return false;
    }
    return true;
  };
  const bool whole_allowed = may_be_whole(node);
  // A cut is left unused only where no factor has room for it.
  const auto complete = [&](const OperatorCuts& cuts) {
    const std::vector<int64_t> parts = factor_parts(mesh_, rule, cuts);
    for (size_t i = 0; i < cuts.size(); ++i) {
      if (cuts[i] >= 0) continue;
      for (const int f : factors) {
        const size_t k = static_cast<size_t>(f);
        if (divisible(rule.factors[k], parts[k] * mesh_.parts(static_cast<int>(i)))) return false;
      }
    }
    return true;
  };
  std::vector<OperatorCuts> out;
  for_each_sequence(mesh_.cut_count(), choices, legal, [&](const OperatorCuts& cuts) {
    if (whole_allowed || complete(cuts)) out.push_back(cuts);
  });
  return out;
}

// The dims along which some operator around the tensor may be cut.
std::vector<Choice> Space::split_dims(Entry e) const {
  std::set<Choice> dims;
  const auto add = [&](int node, const std::vector<int>& rule_dims) {
    for (size_t d = 0; d < rule_dims.size(); ++d) {
      const int f = rule_dims[d];
      if (f == kWhole) continue;
      if (options_.free_operators || useful_[static_cast<size_t>(node)][static_cast<size_t>(f)]) {
        dims.insert(static_cast<Choice>(d));
      }
    }
  };
  const Rule& producer = program_.rules[static_cast<size_t>(e.node)];
  if (producer.known) add(e.node, producer.outputs[static_cast<size_t>(e.index)].dims);
  for (const Use& use : uses(e)) {
    if (use.node < 0) continue;
    const Rule& rule = program_.rules[static_cast<size_t>(use.node)];
    if (rule.known) add(use.node, rule.inputs[use.input].dims);
  }
  const Node& node = graph().node(e.node);
  if (node.is_variable()) {
    const auto pin = options_.pins.find(node.name);
    if (pin != options_.pins.end()) {
      for (const Choice c : pin->second) {
        if (c >= 0) dims.insert(c);
      }
    }
    // A variable that no operator can cut is still spread out to save memory.
    if (dims.empty() && !graph().type(e).shape.empty()) dims.insert(0);
  }
  return {dims.begin(), dims.end()};
}

std::vector<Choice> Space::conversion_choices(Entry e) const {
  std::vector<Choice> choices = split_dims(e);
  choices.push_back(kReplicated);
  choices.push_back(kOwner);
  const Rule& producer = program_.rules[static_cast<size_t>(e.node)];
  for (const Factor& f : producer.factors) {
    if (f.reduced) {
      choices.push_back(kPartial);
      break;
    }
  }
  return choices;
}

std::vector<Tiling> Space::tilings(Entry e, bool replicated, bool owner) const {
  std::vector<Choice> choices = split_dims(e);
  if (replicated) choices.push_back(kReplicated);
  choices.push_back(kOwner);
  const Shape& shape = graph().type(e).shape;
  std::vector<Tiling> out;
  const auto legal = [&](const Tiling& prefix) {
    Tiling tiling = prefix;
    tiling.resize(static_cast<size_t>(mesh_.cut_count()), kReplicated);
    return fits(mesh_, tiling, shape);
  };
  // Unless wanted, owner only where no dim has room for the cut.
  const auto complete = [&](const Tiling& tiling) {
    for (size_t i = 0; i < tiling.size(); ++i) {
      if (tiling[i] != kOwner) continue;
      for (const Choice c : choices) {
        if (c < 0) continue;
        Tiling split = tiling;
        split[i] = c;
        if (fits(mesh_, split, shape)) return false;
      }
    }
    return true;
  };
  for_each_sequence(mesh_.cut_count(), choices, legal, [&](const Tiling& tiling) {
    if (owner || complete(tiling)) out.push_back(tiling);
  });
  return out;
}

std::vector<Tiling> Space::tensor_tilings(Entry e) const {
  const Node& node = graph().node(e.node);
  if (!node.is_variable()) return tilings(e, true, true);
  const auto pin = options_.pins.find(node.name);
  if (pin != options_.pins.end()) return {pin->second};
  if (options_.whole_boundary) {
    return {Tiling(static_cast<size_t>(mesh_.cut_count()), kOwner)};
  }
  // A variable that gets a gradient holds each element once, or its copies
  // would have to be kept equal. What is fed or read only may be replicated.
  const bool once = node.role == Role::kParameter || node.requires_grad;
  const bool owner = is_small(e) || is_fixed(e) || is_used_whole(e) || options_.free_operators;
  return tilings(e, !once, owner);
}

std::vector<Tiling> Space::result_tilings(size_t result) const {
  if (options_.whole_boundary) {
    return {Tiling(static_cast<size_t>(mesh_.cut_count()), kOwner)};
  }
  const size_t outputs = graph().outputs().size();
  if (result >= outputs) {  // a batch statistic goes where its variable is
    const Statistic& s = program_.expanded.statistics[result - outputs];
    const auto pin = options_.pins.find(graph().node(s.variable).name);
    if (pin != options_.pins.end()) return {pin->second};
  }
  return tilings(results_[result], false, true);
}

}  // namespace soybean
