#include "search/arrangement.h"

#include <algorithm>
#include <numeric>

namespace soybean {
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

// All orders in which the cuts with the same choice may divide.
std::vector<std::vector<int>> orders(const std::vector<int>& choices, const std::vector<int>& distinct) {
  std::vector<std::vector<int>> out{std::vector<int>(choices.size(), 0)};
  for (const int choice : distinct) {
    if (choice < 0) continue;
    std::vector<int> cuts;
    for (size_t i = 0; i < choices.size(); ++i) {
      if (choices[i] == choice) cuts.push_back(static_cast<int>(i));
    }
    std::vector<std::vector<int>> more;
    do {
      for (const std::vector<int>& base : out) {
        more.push_back(base);
        for (size_t i = 0; i < cuts.size(); ++i) more.back()[static_cast<size_t>(cuts[i])] = static_cast<int>(i);
      }
    } while (std::next_permutation(cuts.begin(), cuts.end()));
    out.swap(more);
  }
  return out;
}

// A split of a dim that is no choice of an operator.
constexpr int kForeign = -100;

size_t index(int i) { return static_cast<size_t>(i); }

// Deals a division's counts to the cuts of a reference.
class Alignment {
 public:
  Alignment(const Mesh& mesh, const Division& reference, const Division& counts)
      : mesh_(mesh), reference_(reference), choices_(counts.size(), kUnset), order_(counts.size(), 0) {
    for (size_t i = 0; i < counts.size(); ++i) ++demand_[{mesh.class_of(static_cast<int>(i)), counts[i]}];
  }

  // The outermost splits stay where they are.
  void keep_splits() {
    std::vector<int> kept;
    for (const auto& [what, n] : demand_) {
      if (what.second >= 0 && std::count(kept.begin(), kept.end(), what.second) == 0) kept.push_back(what.second);
    }
    for (const int choice : kept) {
      for (const int cut : reference_.cuts_of(choice)) {
        if (!take(cut, choice, reference_.level(index(cut)))) break;
      }
    }
  }

  // Cuts that were `before` become `after`, as many as are wanted, inside of all others. Of these
  // the outermost divides last, so that the smallest pieces cross its links.
  void turn(int before, int after, int level) {
    for (int cut = 0; cut < mesh_.cut_count(); ++cut) {
      if (reference_[index(cut)] == before) take(cut, after, level + mesh_.cut_count() - cut);
    }
  }

  void turn_any(int after, int level) {
    for (int cut = 0; cut < mesh_.cut_count(); ++cut) take(cut, after, level + mesh_.cut_count() - cut);
  }

  std::vector<int> wanted() const {
    std::vector<int> choices;
    for (const auto& [what, n] : demand_) {
      if (n > 0 && std::count(choices.begin(), choices.end(), what.second) == 0) choices.push_back(what.second);
    }
    std::sort(choices.rbegin(), choices.rend());  // splits first
    return choices;
  }

  Division result() const { return Division(choices_, order_); }

 private:
  static constexpr int kUnset = -1000;

  bool take(int cut, int choice, int level) {
    if (choices_[index(cut)] != kUnset) return false;
    const auto it = demand_.find({mesh_.class_of(cut), choice});
    if (it == demand_.end() || it->second == 0) return false;
    --it->second;
    choices_[index(cut)] = choice;
    order_[index(cut)] = level;
    return true;
  }

  const Mesh& mesh_;
  const Division& reference_;
  std::vector<int> choices_, order_;
  std::map<std::pair<int, int>, int> demand_;  // by class and choice
};

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

  if (count > static_cast<double>(limit)) return out;
  for (const std::vector<int>& choices : deals(mesh, division.choices())) {
    for (const std::vector<int>& order : orders(choices, distinct)) add(Division(choices, order));
  }
  return out;
}

Division aligned(const Mesh& mesh, const Division& reference, const Division& counts,
                 const std::vector<int>& copied, bool cut_copies) {
  Alignment a(mesh, reference, counts);
  const auto is_copied = [&copied](int c) {
    return c == kReplicated || std::count(copied.begin(), copied.end(), c) > 0;
  };
  a.keep_splits();
  a.turn(kOwner, kOwner, 0);
  // Copies stay copies, unless sums are to be reduced on fewer of them first.
  for (const int choice : a.wanted()) {
    if (is_copied(choice) && !cut_copies) a.turn(kReplicated, choice, 0);
  }
  for (const int choice : a.wanted()) {
    if (is_copied(choice)) continue;
    a.turn(kReplicated, choice, 100);
    a.turn(kPartial, choice, 200);
    a.turn_any(choice, 300);
  }
  for (const int choice : a.wanted()) {
    a.turn(kReplicated, choice, 100);
    a.turn_any(choice, 300);
  }
  return a.result();
}

Division canonical(const Mesh& mesh, const Division& counts, const std::vector<int>& samples, int last) {
  // Samples, then what does not divide, then the other dims, `last` at the end.
  const auto place = [&](int choice) {
    if (std::count(samples.begin(), samples.end(), choice) > 0) return 0;
    return choice < 0 ? 1 : choice == last ? 3 : 2;
  };
  std::vector<int> choices(counts.size()), order(counts.size());
  for (const std::vector<int>& cuts : mesh.classes()) {
    std::vector<int> own;
    for (const int cut : cuts) own.push_back(counts[index(cut)]);
    std::sort(own.begin(), own.end(), [&](int a, int b) {
      return place(a) != place(b) ? place(a) < place(b) : a < b;
    });
    for (size_t i = 0; i < cuts.size(); ++i) choices[index(cuts[i])] = own[i];
  }
  for (size_t i = 0; i < order.size(); ++i) {
    order[i] = place(choices[i]) == 0 ? static_cast<int>(i) : -static_cast<int>(i);
  }
  return Division(std::move(choices), order);
}

namespace {

// Arranges a plan's operators and tensors one after the other.
class Arranger {
 public:
  Arranger(const Space& space, const Plan& plan, size_t limit, bool arranged)
      : space_(space), mesh_(space.mesh()), plan_(plan), limit_(limit), arranged_(arranged), prices_(space, exact_bytes()) {
    find_samples();
  }

  Domains run() {
    const auto& nodes = space_.graph().nodes();
    out_.operators.resize(nodes.size());
    out_.results.resize(plan_.results.size());
    for (size_t i = 0; i < nodes.size(); ++i) {
      const int node = static_cast<int>(i);
      if (!nodes[i].is_variable()) arrange_operator(node);
      for (size_t k = 0; k < nodes[i].outputs.size(); ++k) arrange_tensor({node, static_cast<int>(k)});
    }
    for (size_t r = 0; r < plan_.results.size(); ++r) arrange_result(r);
    return std::move(out_);
  }

 private:
  static Pricing exact_bytes() {
    Pricing pricing;
    pricing.exact = true;
    return pricing;
  }

  // How a tensor arrives at its uses, as far as that is decided.
  const Tiling* arrives(Entry e) const {
    const auto it = at_.find(e);
    return it == at_.end() ? nullptr : &it->second;
  }

  int64_t price(Entry e, const Tiling& from, const Tiling& to) {
    return prices_.conversion(e, prices_.number(from), prices_.number(to)).bytes;
  }

  // For every tensor the dims that its operators say are samples.
  void find_samples() {
    const auto& rules = space_.program().rules;
    const auto note = [this](const Rule& rule, Entry e, const std::vector<int>& dims) {
      for (size_t d = 0; d < dims.size(); ++d) {
        if (dims[d] != kWhole && rule.factors[index(dims[d])].batch) samples_[e].push_back(static_cast<int>(d));
      }
    };
    for (size_t i = 0; i < rules.size(); ++i) {
      if (!rules[i].known) continue;
      const Node& n = space_.graph().nodes()[i];
      for (size_t k = 0; k < n.inputs.size(); ++k) note(rules[i], n.inputs[k], rules[i].inputs[k].dims);
      for (size_t k = 0; k < n.outputs.size(); ++k) note(rules[i], {static_cast<int>(i), static_cast<int>(k)}, rules[i].outputs[k].dims);
    }
  }

  static void add(const Division& d, std::vector<Division>* to) {
    if (std::find(to->begin(), to->end(), d) == to->end()) to->push_back(d);
  }

  void add_canonical(const Division& counts, const std::vector<int>& samples, std::vector<Division>* to) const {
    bool dims = false;
    for (const int c : counts) {
      if (c < 0 || std::count(samples.begin(), samples.end(), c) > 0) continue;
      dims = true;
      add(canonical(mesh_, counts, samples, c), to);
    }
    if (!dims) add(canonical(mesh_, counts, samples, kReplicated), to);
  }

  // All arrangements, where they are few, with the chosen one first.
  std::vector<Division> worth_trying(const std::vector<Division>& fitting, size_t chosen) const {
    std::vector<Division> out{fitting[chosen]};
    for (const Division& d : arrangements(mesh_, fitting[chosen], limit_)) add(d, &out);
    for (const Division& d : fitting) add(d, &out);
    return out;
  }

  void arrange_operator(int node) {
    const Division& counts = plan_.operators[index(node)];
    if (space_.is_pinned(node)) {
      out_.operators[index(node)] = {counts};
      chosen_[node] = counts;
      return;
    }
    const std::vector<Division> fitting = fitting_cuts(node, counts);
    const size_t best =
        arranged_ ? 0 : cheapest(fitting, [&](const Division& cuts) { return arrival_price(node, cuts); });
    chosen_[node] = fitting[best];
    out_.operators[index(node)] = worth_trying(fitting, best);
  }

  // The plan's own arrangement, if it has one, the canonical ones, and those that fit
  // the operands.
  std::vector<Division> fitting_cuts(int node, const Division& counts) const {
    const Rule& rule = space_.program().rules[index(node)];
    const Node& n = space_.graph().node(node);
    std::vector<Division> fitting;
    if (arranged_) fitting.push_back(counts);
    std::vector<int> samples;
    for (size_t f = 0; f < rule.factors.size(); ++f) {
      if (rule.factors[f].batch) samples.push_back(static_cast<int>(f));
    }
    add_canonical(counts, samples, &fitting);
    for (size_t k = 0; k < n.inputs.size() && rule.known; ++k) {
      const Tiling* arrives_as = arrives(n.inputs[k]);
      if (arrives_as != nullptr) add_fitting(rule, rule.inputs[k].dims, *arrives_as, counts, &fitting);
    }
    if (!arranged_) return fitting;
    for (size_t k = 0; k < n.outputs.size() && rule.known; ++k) {
      for (const Tiling& wanted : wanted_as({node, static_cast<int>(k)})) {
        add_fitting(rule, rule.outputs[k].dims, wanted, counts, &fitting);
      }
    }
    return fitting;
  }

  // Cuts that fit an operand, which has these factors along its dims.
  void add_fitting(const Rule& rule, const std::vector<int>& dims, const Tiling& operand,
                   const Division& counts, std::vector<Division>* fitting) const {
    std::vector<int> reference, copied;
    for (size_t i = 0; i < operand.size(); ++i) {
      const int c = operand[i];
      const bool factor = c >= 0 && dims[index(c)] != kWhole;
      reference.push_back(c < 0 ? c : factor ? dims[index(c)] : kForeign);
    }
    for (size_t f = 0; f < rule.factors.size(); ++f) {
      if (std::count(dims.begin(), dims.end(), static_cast<int>(f)) == 0) copied.push_back(static_cast<int>(f));
    }
    const Division in_factors = operand.with_choices(reference);
    for (const bool cut_copies : {false, true}) add(aligned(mesh_, in_factors, counts, copied, cut_copies), fitting);
  }

  // How the plan wants an output: as it rests, or as its only use needs it.
  std::vector<Tiling> wanted_as(Entry e) const {
    if (space_.uses(e).empty()) return {};
    return {plan_.tensors.at(e)};
  }

  int64_t arrival_price(int node, const Division& cuts) {
    const Rule& rule = space_.program().rules[index(node)];
    const Node& n = space_.graph().node(node);
    int64_t sum = 0;
    for (size_t k = 0; k < n.inputs.size(); ++k) {
      const Tiling* arrives_as = arrives(n.inputs[k]);
      if (arrives_as != nullptr) sum += price(n.inputs[k], *arrives_as, input_tiling(rule, k, cuts));
    }
    return sum;
  }

  void arrange_tensor(Entry e) {
    const bool variable = space_.graph().node(e.node).is_variable();
    if (!variable) {
      at_[e] = output_tiling(space_.program().rules[index(e.node)], index(e.index), chosen_.at(e.node));
    }
    if (!rests(space_, e)) return;
    const Tiling& counts = plan_.tensors.at(e);
    if (space_.is_pinned(e)) {
      out_.tensors[e] = {counts};
      at_[e] = counts;
      return;
    }
    std::vector<Division> fitting;
    if (arranged_) fitting.push_back(counts);
    const auto samples = samples_.find(e);
    add_canonical(counts, samples == samples_.end() ? std::vector<int>{} : samples->second, &fitting);
    if (!variable) add_aligned(at_[e], counts, &fitting);
    for (const Use& use : space_.uses(e)) {
      if (!arranged_ || use.node < 0) continue;
      const size_t node = index(use.node);
      add_aligned(input_tiling(space_.program().rules[node], use.input, plan_.operators[node]), counts, &fitting);
    }
    size_t best = 0;
    if (!variable && !arranged_) {
      const Tiling made = at_[e];
      best = cheapest(fitting, [&](const Tiling& t) { return price(e, made, t); });
    }
    out_.tensors[e] = worth_trying(fitting, best);
    at_[e] = fitting[best];
  }

  void add_aligned(const Tiling& reference, const Tiling& counts, std::vector<Division>* fitting) const {
    for (const bool cut_copies : {false, true}) add(aligned(mesh_, reference, counts, {}, cut_copies), fitting);
  }

  void arrange_result(size_t r) {
    const Tiling& counts = plan_.results[r];
    if (space_.result_tilings(r).size() == 1) {
      out_.results[r] = {counts};
      return;
    }
    const Entry e = space_.results()[r];
    std::vector<Division> fitting;
    if (arranged_) fitting.push_back(counts);
    const auto samples = samples_.find(e);
    add_canonical(counts, samples == samples_.end() ? std::vector<int>{} : samples->second, &fitting);
    const Tiling* arrives_as = arrives(e);
    if (arrives_as != nullptr) add_aligned(*arrives_as, counts, &fitting);
    size_t best = 0;
    if (arrives_as != nullptr && !arranged_) {
      best = cheapest(fitting, [&](const Tiling& t) { return price(e, *arrives_as, t); });
    }
    out_.results[r] = worth_trying(fitting, best);
  }

  template <typename Price>
  static size_t cheapest(const std::vector<Division>& choices, Price price) {
    size_t best = 0;
    int64_t least = price(choices[0]);
    for (size_t i = 1; i < choices.size(); ++i) {
      const int64_t cost = price(choices[i]);
      if (cost >= least) continue;
      least = cost;
      best = i;
    }
    return best;
  }

  const Space& space_;
  const Mesh& mesh_;
  const Plan& plan_;
  const size_t limit_;
  const bool arranged_;
  Prices prices_;
  Domains out_;
  std::map<Entry, std::vector<int>> samples_;
  std::map<int, Division> chosen_;
  std::map<Entry, Tiling> at_;
};

}  // namespace

Domains arranged_domains(const Space& space, const Plan& plan, size_t limit, bool arranged) {
  return Arranger(space, plan, limit, arranged).run();
}

}  // namespace soybean
