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

  // Cuts that were `before` become `after`, as many as are wanted, inside of all others.
  void turn(int before, int after, int level) {
    for (int cut = 0; cut < mesh_.cut_count(); ++cut) {
      if (reference_[index(cut)] == before) take(cut, after, level + cut);
    }
  }

  void turn_any(int after, int level) {
    for (int cut = 0; cut < mesh_.cut_count(); ++cut) take(cut, after, level + cut);
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
    std::vector<int> order(choices.size());
    std::iota(order.begin(), order.end(), 0);
    do add(Division(choices, order));
    while (std::next_permutation(order.begin(), order.end()));
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

namespace {

// Arranges a plan's operators and tensors one after the other.
class Arranger {
 public:
  Arranger(const Space& space, const Plan& plan, size_t limit)
      : space_(space), mesh_(space.mesh()), plan_(plan), limit_(limit), prices_(space, exact_bytes()) {
    all_ = domains_of(space, {});
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

  // All arrangements, where they are few, with the chosen one first.
  std::vector<Division> worth_trying(const std::vector<Division>& fitting, size_t chosen) const {
    std::vector<Division> out{fitting[chosen]};
    const auto add = [&out](const Division& d) {
      if (std::find(out.begin(), out.end(), d) == out.end()) out.push_back(d);
    };
    for (const Division& d : arrangements(mesh_, fitting[chosen], limit_)) add(d);
    for (const Division& d : fitting) add(d);
    return out;
  }

  void arrange_operator(int node) {
    const Division& counts = plan_.operators[index(node)];
    if (space_.is_pinned(node)) {
      out_.operators[index(node)] = {counts};
      chosen_[node] = counts;
    } else {
      std::vector<Division> fitting = fitting_cuts(node, counts);
      const size_t best = cheapest(fitting, [&](const Division& cuts) { return arrival_price(node, cuts); });
      chosen_[node] = fitting[best];
      out_.operators[index(node)] = worth_trying(fitting, best);
    }
  }

  std::vector<Division> fitting_cuts(int node, const Division& counts) const {
    const Rule& rule = space_.program().rules[index(node)];
    const Node& n = space_.graph().node(node);
    std::vector<Division> fitting;
    for (size_t k = 0; k < n.inputs.size() && rule.known; ++k) {
      const Tiling* arrives_as = arrives(n.inputs[k]);
      if (arrives_as == nullptr) continue;
      const std::vector<int>& dims = rule.inputs[k].dims;
      std::vector<int> reference, copied;
      for (size_t i = 0; i < arrives_as->size(); ++i) {
        const int c = (*arrives_as)[i];
        const bool factor = c >= 0 && dims[index(c)] != kWhole;
        reference.push_back(c < 0 ? c : factor ? dims[index(c)] : kForeign);
      }
      for (size_t f = 0; f < rule.factors.size(); ++f) {
        if (std::count(dims.begin(), dims.end(), static_cast<int>(f)) == 0) copied.push_back(static_cast<int>(f));
      }
      const Division in_factors(reference, arrives_as->levels());
      for (const bool cut_copies : {false, true}) {
        const Division d = aligned(mesh_, in_factors, counts, copied, cut_copies);
        if (std::find(fitting.begin(), fitting.end(), d) == fitting.end()) fitting.push_back(d);
      }
    }
    if (fitting.empty()) fitting.push_back(counts);
    return fitting;
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
    if (all_.tensors.count(e) == 0) return;
    const Tiling& counts = plan_.tensors.at(e);
    if (space_.is_pinned(e) || variable) {
      out_.tensors[e] = space_.is_pinned(e) ? std::vector<Tiling>{counts} : worth_trying({counts}, 0);
      at_[e] = counts;
      return;
    }
    const Tiling made = at_[e];
    const std::vector<Division> fitting{aligned(mesh_, made, counts), aligned(mesh_, made, counts, {}, true)};
    const size_t best = cheapest(fitting, [&](const Tiling& t) { return price(e, made, t); });
    out_.tensors[e] = worth_trying(fitting, best);
    at_[e] = fitting[best];
  }

  void arrange_result(size_t r) {
    const Tiling& counts = plan_.results[r];
    if (all_.results[r].size() == 1) {
      out_.results[r] = {counts};
      return;
    }
    const Entry e = space_.results()[r];
    const Tiling* arrives_as = arrives(e);
    if (arrives_as == nullptr) {
      out_.results[r] = worth_trying({counts}, 0);
      return;
    }
    const std::vector<Division> fitting{aligned(mesh_, *arrives_as, counts), aligned(mesh_, *arrives_as, counts, {}, true)};
    out_.results[r] = worth_trying(fitting, cheapest(fitting, [&](const Tiling& t) { return price(e, *arrives_as, t); }));
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
  Prices prices_;
  Domains all_, out_;
  std::map<int, Division> chosen_;
  std::map<Entry, Tiling> at_;
};

}  // namespace

Domains arranged_domains(const Space& space, const Plan& plan, size_t limit) {
  return Arranger(space, plan, limit).run();
}

}  // namespace soybean
