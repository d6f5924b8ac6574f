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

// Calls `visit` with one division for each combination of counts of the choices: in
// each class the cuts take the choices in the order given. `keep` is asked after
// each class is dealt.
void for_each_counts(const Mesh& mesh, const std::vector<int>& choices,
                     const std::function<bool(const std::vector<int>&)>& keep,
                     const std::function<void(const Division&)>& visit) {
  std::vector<int> sequence(static_cast<size_t>(mesh.cut_count()), kReplicated);
  std::function<void(size_t, size_t, size_t)> deal = [&](size_t c, size_t next, size_t choice) {
    if (c == mesh.classes().size()) {
      visit(Division(sequence));
      return;
    }
    const std::vector<int>& cuts = mesh.classes()[c];
    if (next == cuts.size()) {
      deal(c + 1, 0, 0);
      return;
    }
    for (size_t i = choice; i < choices.size(); ++i) {
      int& place = sequence[static_cast<size_t>(cuts[next])];
      place = choices[i];
      if (keep(sequence)) deal(c, next + 1, i);
      place = kReplicated;
    }
  };
  deal(0, 0, 0);
}

// How many parts the cuts make of each factor.
std::vector<int64_t> factor_parts(const Mesh& mesh, const Rule& rule,
                                  const std::vector<int>& cuts) {
  std::vector<int64_t> parts(rule.factors.size(), 1);
  for (size_t i = 0; i < cuts.size(); ++i) {
    if (cuts[i] >= 0) parts[static_cast<size_t>(cuts[i])] *= mesh.parts(static_cast<int>(i));
  }
  return parts;
}

bool divisible(const Factor& f, int64_t parts) {
  return parts <= f.size && (!f.even || f.size % parts == 0);
}

bool is_legal(const Mesh& mesh, const Rule& rule, const std::vector<int>& cuts) {
  const std::vector<int64_t> parts = factor_parts(mesh, rule, cuts);
  for (size_t f = 0; f < parts.size(); ++f) {
    if (!divisible(rule.factors[f], parts[f])) return false;
  }
  return true;
}

Division owned(const Mesh& mesh) {
  return Division(std::vector<int>(static_cast<size_t>(mesh.cut_count()), kOwner));
}

template <typename T>
T pick(const std::vector<T>& from, std::mt19937_64* random) {
  return from[(*random)() % from.size()];
}

Division shuffled(const Mesh& mesh, const Division& division, std::mt19937_64* random) {
  std::vector<int> choices = division.choices(), order(choices.size());
  for (const std::vector<int>& cuts : mesh.classes()) {
    for (size_t i = cuts.size(); i > 1; --i) {
      std::swap(choices[static_cast<size_t>(cuts[i - 1])], choices[static_cast<size_t>(cuts[(*random)() % i])]);
    }
  }
  std::iota(order.begin(), order.end(), 0);
  for (size_t i = order.size(); i > 1; --i) std::swap(order[i - 1], order[(*random)() % i]);
  return Division(std::move(choices), order);
}

}  // namespace

Space::Space(const Program& program, const Mesh& mesh, const SpaceOptions& options)
    : program_(program), mesh_(mesh), options_(options), results_(program.results()) {
  for (const Node& node : graph().nodes()) {
    for (const TensorType& type : node.outputs) largest_ = std::max(largest_, byte_count(type));
  }
  find_uses();
  find_useful_factors();
  pins_ = resolve(program, mesh, options.pins);
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
    const std::vector<Factor>& factors = program_.rules[i].factors;
    for (size_t f = first[i]; f < first[i + 1]; ++f) useful.push_back(roots.count(root(f)) > 0);
    if (std::count(useful.begin(), useful.end(), true) == 0) useful.assign(useful.size(), true);
    for (size_t f = 0; f < useful.size() && !options_.spatial; ++f) {
      if (factors[f].spatial) useful[f] = false;
    }
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

// Whether an operator without a rule makes or uses the tensor: it may as well be
// where that is.
bool Space::touches_whole(Entry e) const {
  if (!graph().node(e.node).is_variable() && !program_.rules[static_cast<size_t>(e.node)].known) return true;
  const std::vector<Use>& all = uses(e);
  return std::any_of(all.begin(), all.end(), [&](const Use& use) {
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

std::vector<int> Space::usable_factors(int node) const {
  const Rule& rule = program_.rules[static_cast<size_t>(node)];
  std::vector<int> factors;
  for (size_t f = 0; f < rule.factors.size(); ++f) {
    if (useful_[static_cast<size_t>(node)][f] || options_.free_operators) {
      factors.push_back(static_cast<int>(f));
    }
  }
  return factors;
}

std::vector<OperatorCuts> Space::operator_cuts(int node) const {
  const auto pin = pins_.operators.find(node);
  if (pin != pins_.operators.end()) return {pin->second};
  const Rule& rule = program_.rules[static_cast<size_t>(node)];
  if (!rule.known) return {owned(mesh_)};

  const std::vector<int> factors = usable_factors(node);
  std::vector<int> choices = factors;
  if (!rule.random) choices.push_back(kReplicated);
  choices.push_back(kOwner);
  const bool whole_allowed = may_be_whole(node);
  // A cut is left unused only where no factor has room for it.
  const auto complete = [&](const Division& cuts) {
    const std::vector<int64_t> parts = factor_parts(mesh_, rule, cuts.choices());
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
  const auto legal = [&](const std::vector<int>& cuts) { return is_legal(mesh_, rule, cuts); };
  for_each_counts(mesh_, choices, legal, [&](const Division& cuts) {
    if (whole_allowed || complete(cuts)) out.push_back(cuts);
  });
  return out;
}

// A variable that gets a gradient holds each element once, or its copies would have
// to be kept equal. What is fed or read only may be replicated.
bool Space::held_once(Entry e) const {
  const Node& node = graph().node(e.node);
  return node.is_variable() && (node.role == Role::kParameter || node.requires_grad);
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
  // A variable is spread out to save memory even where no operator can cut it; one
  // that is held once, so far as any of its dims has room.
  const Node& node = graph().node(e.node);
  const size_t rank = graph().type(e).shape.size();
  if (node.is_variable() && dims.empty() && rank > 0) dims.insert(0);
  for (size_t d = 0; d < rank && held_once(e); ++d) dims.insert(static_cast<Choice>(d));
  return {dims.begin(), dims.end()};
}

std::vector<Tiling> Space::tilings(Entry e, bool replicated, bool owner) const {
  std::vector<Choice> choices = split_dims(e);
  if (replicated) choices.push_back(kReplicated);
  choices.push_back(kOwner);
  const Shape& shape = graph().type(e).shape;
  // Unless wanted, owner only where no dim has room for the cut.
  const auto complete = [&](const Tiling& tiling) {
    for (size_t i = 0; i < tiling.size(); ++i) {
      if (tiling[i] != kOwner) continue;
      for (const Choice c : choices) {
        if (c >= 0 && fits(mesh_, tiling.with(static_cast<int>(i), c), shape)) return false;
      }
    }
    return true;
  };
  const auto legal = [&](const std::vector<int>& t) { return fits(mesh_, Tiling(t), shape); };
  std::vector<Tiling> out;
  for_each_counts(mesh_, choices, legal, [&](const Tiling& tiling) {
    if (owner || complete(tiling)) out.push_back(tiling);
  });
  return out;
}

bool Space::may_be_owned(Entry e) const {
  return is_small(e) || touches_whole(e) || is_fixed(e) || options_.free_operators;
}

std::vector<Tiling> Space::tensor_tilings(Entry e) const {
  const auto pin = pins_.tensors.find(e);
  if (pin != pins_.tensors.end()) return {pin->second};
  const Node& node = graph().node(e.node);
  if (!node.is_variable()) return tilings(e, true, may_be_owned(e));
  if (options_.whole_boundary) return {owned(mesh_)};
  return tilings(e, !held_once(e), may_be_owned(e));
}

std::vector<Tiling> Space::result_tilings(size_t result) const {
  if (options_.whole_boundary) return {owned(mesh_)};
  const size_t outputs = graph().outputs().size();
  if (result >= outputs) {  // a batch statistic goes where its variable is
    const Statistic& s = program_.expanded.statistics[result - outputs];
    const auto pin = pins_.tensors.find({s.variable, 0});
    if (pin != pins_.tensors.end()) return {pin->second};
  }
  const Entry e = results_[result];
  return tilings(e, false, may_be_owned(e));
}

OperatorCuts Space::random_cuts(int node, std::mt19937_64* random) const {
  return shuffled(mesh_, pick(operator_cuts(node), random), random);
}

Tiling Space::random_tiling(Entry e, std::mt19937_64* random) const {
  const Tiling tiling = pick(tensor_tilings(e), random);
  return is_pinned(e) ? tiling : shuffled(mesh_, tiling, random);
}

Tiling Space::random_result(size_t result, std::mt19937_64* random) const {
  return shuffled(mesh_, pick(result_tilings(result), random), random);
}

namespace {

// All distinct ways to deal the choices of one class to its cuts.
std::vector<std::vector<int>> deals(const Mesh& mesh, const std::vector<int>& choices) {
  std::vector<std::vector<int>> out{choices};
  for (const std::vector<int>& cuts : mesh.classes()) {
    std::vector<std::vector<int>> more;
    for (const std::vector<int>& base : out) {
      std::vector<int> own;
      for (const int cut : cuts) own.push_back(base[static_cast<size_t>(cut)]);
      std::sort(own.begin(), own.end());
      do {
        more.push_back(base);
        for (size_t i = 0; i < cuts.size(); ++i) more.back()[static_cast<size_t>(cuts[i])] = own[i];
      } while (std::next_permutation(own.begin(), own.end()));
    }
    out.swap(more);
  }
  return out;
}

double factorial(size_t n) { return n < 2 ? 1 : static_cast<double>(n) * factorial(n - 1); }

// In each class, the cuts of each choice side by side, the choices in this order.
std::vector<int> side_by_side(const Mesh& mesh, const Division& division,
                              const std::vector<int>& order) {
  std::vector<int> choices(division.size());
  for (const std::vector<int>& cuts : mesh.classes()) {
    size_t next = 0;
    for (const int choice : order) {
      for (const int cut : cuts) {
        if (division[static_cast<size_t>(cut)] == choice) choices[static_cast<size_t>(cuts[next++])] = choice;
      }
    }
  }
  return choices;
}

}  // namespace

std::vector<Division> arrangements(const Mesh& mesh, const Division& division, size_t limit) {
  std::vector<int> distinct = division.choices();
  std::sort(distinct.begin(), distinct.end());
  distinct.erase(std::unique(distinct.begin(), distinct.end()), distinct.end());
  std::vector<Division> out{division};
  const auto add = [&](Division d) {
    if (std::find(out.begin(), out.end(), d) == out.end()) out.push_back(std::move(d));
  };

  double count = 1;  // deals times orders
  for (const std::vector<int>& cuts : mesh.classes()) {
    count *= factorial(cuts.size());
    for (const int c : distinct) {
      size_t n = 0;
      for (const int cut : cuts) n += division[static_cast<size_t>(cut)] == c ? 1 : 0;
      count /= factorial(n);
    }
  }
  for (const int c : distinct) count *= c >= 0 ? factorial(division.cuts_of(c).size()) : 1;

  if (count <= static_cast<double>(limit)) {
    for (const std::vector<int>& choices : deals(mesh, division.choices())) {
      std::vector<int> order(choices.size());
      std::iota(order.begin(), order.end(), 0);
      do add(Division(choices, order));
      while (std::next_permutation(order.begin(), order.end()));
    }
    return out;
  }
  do {
    const std::vector<int> choices = side_by_side(mesh, division, distinct);
    for (unsigned ascending = 0; ascending < 1u << distinct.size() && out.size() < limit; ++ascending) {
      std::vector<int> order(choices.size());
      for (size_t i = 0; i < order.size(); ++i) {
        const auto at = std::find(distinct.begin(), distinct.end(), choices[i]) - distinct.begin();
        order[i] = (ascending >> at & 1) != 0 ? static_cast<int>(i) : -static_cast<int>(i);
      }
      add(Division(choices, order));
    }
  } while (out.size() < limit && std::next_permutation(distinct.begin(), distinct.end()));
  return out;
}

}  // namespace soybean
