#include "search/space.h"

#include <algorithm>
#include <functional>
#include <iterator>
#include <numeric>
#include <set>

#include "graph/share_parameters.h"
#include "search/ties.h"

namespace soybean {
namespace {

// A tensor is small when cutting it saves nothing that a person would notice
// and costs a message: below this, and below a 256th of the largest tensor.
constexpr int64_t kSmallBytes = 64 * 1024;
constexpr int64_t kSmallFraction = 256;

// The most ways to cut or tile that one operator or tensor brings into a search, and
// where computing is priced, so that there are more for all.
constexpr size_t kMostWays = 256;
constexpr size_t kMostPricedWays = 128;

// Of more divisions than `most` those with the fewest different choices, or, if these
// are still too many, those that make one choice for each class of cuts.
bool limit_ways(const Mesh& mesh, size_t most, std::vector<Division>* ways) {
  if (ways->size() <= most) return false;
  const auto keep = [ways](const std::function<bool(const Division&)>& wanted) {
    std::vector<Division> kept;
    std::copy_if(ways->begin(), ways->end(), std::back_inserter(kept), wanted);
    if (!kept.empty()) ways->swap(kept);
  };
  for (size_t different = 4; different >= 2 && ways->size() > most; --different) {
    keep([different](const Division& d) { return std::set<int>(d.begin(), d.end()).size() <= different; });
  }
  if (ways->size() <= most) return true;
  keep([&mesh](const Division& d) {
    for (const std::vector<int>& cuts : mesh.classes()) {
      for (const int cut : cuts) {
        if (d[static_cast<size_t>(cut)] != d[static_cast<size_t>(cuts[0])]) return false;
      }
    }
    return true;
  });
  return true;
}

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

// Not replicated by some cuts and left to the owner by others, which gains nothing.
bool is_uniform(const Division& d) { return !d.has(kReplicated) || !d.has(kOwner); }

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

// A factor is useful when it is tied to a factor of an operator with a weight (a
// parameter of two dims or more): only there does a choice decide what must be
// communicated. Trying to cut others costs time and finds nothing. An operator without
// useful factors keeps all of its own.
//
// A sample's own dims (the height and width of an image, the positions of a sequence)
// are useful where they may be cut at all: cutting them needs the same weights as
// cutting the samples, and halos or other positions besides. Of dims over which no
// windows run, these are the ones that no parameter has, and that every operator with
// a weight, unless it is minor, has beside the samples.
void Space::find_useful_factors() {
  const Ties ties(graph(), program_.rules);
  std::vector<bool> anchored(ties.count(), false), windows(ties.count(), false);
  std::vector<bool> samples(ties.count(), false), of_parameter(ties.count(), false), alone(ties.count(), false);
  const auto is_weight = [this](Entry e) {
    const Node& source = original(graph(), e);
    return source.is_variable() && source.role == Role::kParameter && graph().type(e).shape.size() >= 2;
  };
  ties.for_each_dim([&](size_t node, size_t f, Entry e, size_t dim) {
    const Node& source = original(graph(), e);
    if (source.role == Role::kInput && dim == 0) samples[ties.of(node, f)] = true;
    if (source.role == Role::kParameter) of_parameter[ties.of(node, f)] = true;
  });
  for (size_t i = 0; i < program_.rules.size(); ++i) {
    const std::vector<Factor>& factors = program_.rules[i].factors;
    const std::vector<Entry>& inputs = graph().nodes()[i].inputs;
    const bool weight = std::any_of(inputs.begin(), inputs.end(), is_weight);
    // The positions' own embedding is looked up once for all samples.
    int64_t bytes = 0;
    for (const TensorType& type : graph().nodes()[i].outputs) bytes = std::max(bytes, byte_count(type));
    const bool minor = bytes <= largest_ / kSmallFraction;
    bool has_samples = false;
    for (size_t f = 0; f < factors.size(); ++f) {
      has_samples = has_samples || (samples[ties.of(i, f)] && factors[f].size >= mesh_.devices());
    }
    for (size_t f = 0; f < factors.size(); ++f) {
      if (weight) anchored[ties.of(i, f)] = true;
      if (weight && !has_samples && !minor) alone[ties.of(i, f)] = true;
      if (factors[f].spatial) windows[ties.of(i, f)] = true;
    }
  }
  const auto of_a_sample = [&](size_t tie) {
    return windows[tie] || (!samples[tie] && !of_parameter[tie] && !alone[tie]);
  };
  for (size_t i = 0; i < program_.rules.size(); ++i) {
    const std::vector<Factor>& factors = program_.rules[i].factors;
    std::vector<bool> useful;
    bool any = false, other = false;  // factors that are useful, or not a sample's own
    for (size_t f = 0; f < factors.size(); ++f) {
      useful.push_back(anchored[ties.of(i, f)]);
      any = any || useful[f];
      other = other || (!of_a_sample(ties.of(i, f)) && (samples[ties.of(i, f)] || useful[f]));
    }
    if (!any) useful.assign(useful.size(), true);
    for (size_t f = 0; f < useful.size() && !options_.sample_dims; ++f) {
      const size_t tie = ties.of(i, f);
      if (windows[tie] || (other && of_a_sample(tie))) useful[f] = false;
    }
    useful_.push_back(std::move(useful));
  }
}

bool Space::is_small(Entry e) const {
  const int64_t bytes = byte_count(graph().type(e));
  return bytes <= kSmallBytes && bytes <= largest_ / kSmallFraction;
}

const Use* Space::fixed_by(Entry e) const {
  if (!graph().node(e.node).is_variable()) return nullptr;
  for (const Use& use : uses(e)) {
    if (use.node >= 0 && takes_variable_only(graph(), use.node, use.input)) return &use;
  }
  return nullptr;
}

Tiling Space::fixed_tiling(Entry e, const std::vector<OperatorCuts>& operators) const {
  const Use* use = fixed_by(e);
  const size_t node = static_cast<size_t>(use->node);
  return input_tiling(program_.rules[node], use->input, operators[node]);
}

// Whether an operator changes variables in place.
bool Space::changes_variables(int node) const {
  const std::vector<Entry>& inputs = graph().node(node).inputs;
  return std::any_of(inputs.begin(), inputs.end(), [this](const Entry& e) { return is_fixed(e); });
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

// Operators that may be left uncut although they could be cut: small ones without
// samples, and those whose variables are changed in place.
bool Space::may_be_whole(int node) const {
  const Node& n = graph().node(node);
  if (options_.free_operators || options_.priced_computation || changes_variables(node)) return true;
  const std::vector<Factor>& factors = program_.rules[static_cast<size_t>(node)].factors;
  bool small = std::none_of(factors.begin(), factors.end(), [](const Factor& f) { return f.batch; });
  for (const Entry& e : n.inputs) small = small && is_small(e);
  for (size_t k = 0; k < n.outputs.size(); ++k) {
    small = small && is_small({node, static_cast<int>(k)});
  }
  return small;
}

size_t Space::most_ways() const { return options_.priced_computation ? kMostPricedWays : kMostWays; }

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
  const bool fixed = changes_variables(node);
  // An operator that changes its variables in place is where they are: with variables
  // whole on the first device, it is there too.
  if (fixed && options_.whole_boundary) return {owned(mesh_)};

  const std::vector<int> factors = usable_factors(node);
  const bool whole_allowed = may_be_whole(node);
  // Copies of an operator that changes its variables in place would have to be run by
  // every device, also where nothing needs their outputs.
  const bool alone = rule.random || fixed;
  std::vector<int64_t> key{whole_allowed, alone};
  for (const int f : factors) {
    const Factor& factor = rule.factors[static_cast<size_t>(f)];
    key.insert(key.end(), {f, factor.size, factor.even});
  }
  const auto [it, fresh] = known_cuts_.emplace(std::move(key), std::vector<Division>{});
  if (fresh) it->second = ways_to_cut(rule, factors, whole_allowed, alone);
  return it->second;
}

std::vector<OperatorCuts> Space::ways_to_cut(const Rule& rule, const std::vector<int>& factors,
                                             bool whole_allowed, bool alone) const {
  std::vector<int> choices = factors;
  if (!alone) choices.push_back(kReplicated);
  choices.push_back(kOwner);
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
    if ((is_uniform(cuts) || options_.free_operators) && (whole_allowed || complete(cuts))) out.push_back(cuts);
  });
  if (!options_.free_operators) limited_ = limit_ways(mesh_, most_ways(), &out) || limited_;
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
  // A variable is spread out to save memory even where no operator can cut it; one
  // that is held once, so far as any of its dims has room.
  const Node& node = graph().node(e.node);
  const size_t rank = graph().type(e).shape.size();
  if (node.is_variable() && dims.empty() && rank > 0) dims.insert(0);
  for (size_t d = 0; d < rank && node.is_held_once(); ++d) dims.insert(static_cast<Choice>(d));
  return {dims.begin(), dims.end()};
}

std::vector<Tiling> Space::tilings(Entry e, bool replicated, bool owner) const {
  std::vector<Choice> choices = split_dims(e);
  if (replicated) choices.push_back(kReplicated);
  choices.push_back(kOwner);
  const Shape& shape = graph().type(e).shape;
  std::vector<int64_t> key{owner};
  key.insert(key.end(), choices.begin(), choices.end());
  key.insert(key.end(), shape.begin(), shape.end());
  const auto [it, fresh] = known_tilings_.emplace(std::move(key), std::vector<Division>{});
  if (fresh) it->second = ways_to_tile(shape, choices, owner);
  return it->second;
}

std::vector<Tiling> Space::ways_to_tile(const Shape& shape, const std::vector<Choice>& choices,
                                        bool owner) const {
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
    if ((is_uniform(tiling) || options_.free_operators) && (owner || complete(tiling))) out.push_back(tiling);
  });
  if (!options_.free_operators) limited_ = limit_ways(mesh_, most_ways(), &out) || limited_;
  return out;
}

// Whether some operator makes or needs copies of the tensor, or one of them makes and
// one needs it whole, so that it may rest so.
bool Space::is_wanted_replicated(Entry e) const {
  if (options_.free_operators || touches_whole(e) || may_be_whole(e.node)) return true;
  const auto lacks_a_factor = [this](int node, const std::vector<int>& dims) {
    const std::vector<int> factors = usable_factors(node);
    return std::any_of(factors.begin(), factors.end(), [&dims](int f) {
      return std::find(dims.begin(), dims.end(), f) == dims.end();
    });
  };
  for (const Use& use : uses(e)) {
    if (use.node < 0) continue;
    const TensorRule& operand = program_.rules[static_cast<size_t>(use.node)].inputs[use.input];
    if (may_be_whole(use.node) || lacks_a_factor(use.node, operand.dims)) return true;
  }
  return false;
}

bool Space::may_be_owned(Entry e) const {
  return is_small(e) || touches_whole(e) || is_fixed(e) || options_.free_operators ||
         (options_.priced_computation && !graph().node(e.node).is_variable());
}

std::vector<Tiling> Space::tensor_tilings(Entry e) const {
  const auto pin = pins_.tensors.find(e);
  if (pin != pins_.tensors.end()) return {pin->second};
  const Node& node = graph().node(e.node);
  if (!node.is_variable()) return tilings(e, is_wanted_replicated(e), may_be_owned(e));
  if (options_.whole_boundary) return {owned(mesh_)};
  return tilings(e, !node.is_held_once(), may_be_owned(e));
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

}  // namespace soybean
