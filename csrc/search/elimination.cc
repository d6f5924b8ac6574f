#include "search/elimination.h"

#include <algorithm>
#include <set>

namespace soybean {
namespace {

// A variable that has been eliminated: its best value, for every combination of
// the variables that its tables mentioned.
struct Eliminated {
  int variable;
  std::vector<int> scope;  // ascending
  std::vector<int> best;
};

class Eliminator {
 public:
  Eliminator(const std::vector<int>& domains, std::vector<CostTable> tables, size_t limit)
      : domains_(domains), tables_(std::move(tables)), limit_(limit), by_variable_(domains.size()) {
    for (size_t t = 0; t < tables_.size(); ++t) {
      for (const int v : tables_[t].variables) by_variable_[index(v)].insert(t);
    }
  }

  std::optional<Assignment> run() {
    std::set<int> left;
    for (size_t v = 0; v < domains_.size(); ++v) left.insert(static_cast<int>(v));
    while (!left.empty()) {
      const int v = *std::min_element(left.begin(), left.end(), [&](int a, int b) {
        const double sa = table_size(a), sb = table_size(b);
        return sa != sb ? sa < sb : a < b;
      });
      if (table_size(v) * domains_[index(v)] > static_cast<double>(limit_)) return std::nullopt;
      eliminate(v);
      left.erase(v);
    }
    Cost total{};
    for (const CostTable& t : tables_) {
      if (t.variables.empty() && !t.costs.empty()) total = total + t.costs[0];
    }
    if (is_impossible(total)) return std::nullopt;
    return Assignment{trace_back(), total};
  }

 private:
  static size_t index(int v) { return static_cast<size_t>(v); }

  std::vector<int> scope_of(int v) const {
    std::set<int> scope;
    for (const size_t t : by_variable_[index(v)]) {
      scope.insert(tables_[t].variables.begin(), tables_[t].variables.end());
    }
    scope.erase(v);
    return {scope.begin(), scope.end()};
  }

  // The entries of the table that eliminating v makes; cached until a table of
  // v changes.
  double table_size(int v) {
    auto [it, fresh] = sizes_.emplace(v, 1.0);
    if (fresh) {
      for (const int other : scope_of(v)) it->second *= domains_[index(other)];
    }
    return it->second;
  }

  // Where an entry of `table` lies for an assignment counted over `scope`.
  std::vector<size_t> strides(const CostTable& table, const std::vector<int>& scope) const {
    std::vector<size_t> out(scope.size(), 0);
    size_t stride = 1;
    for (size_t i = table.variables.size(); i-- > 0;) {
      const auto it = std::find(scope.begin(), scope.end(), table.variables[i]);
      out[static_cast<size_t>(it - scope.begin())] = stride;
      stride *= index(domains_[index(table.variables[i])]);
    }
    return out;
  }

  void eliminate(int v) {
    const std::vector<size_t> members(by_variable_[index(v)].begin(), by_variable_[index(v)].end());
    Eliminated record{v, scope_of(v), {}};
    std::vector<int> scope = record.scope;
    scope.push_back(v);  // varies fastest
    std::vector<std::vector<size_t>> stride;
    for (const size_t t : members) stride.push_back(strides(tables_[t], scope));

    size_t entries = 1;
    for (const int other : record.scope) entries *= index(domains_[index(other)]);
    CostTable result{record.scope, std::vector<Cost>(entries)};
    record.best.resize(entries);

    std::vector<int> at(record.scope.size(), 0);
    std::vector<size_t> base(members.size(), 0);
    for (size_t entry = 0; entry < entries; ++entry) {
      Cost least = kImpossible;
      int best = 0;
      for (int value = 0; value < domains_[index(v)]; ++value) {
        Cost sum{};
        for (size_t m = 0; m < members.size(); ++m) {
          sum = sum + tables_[members[m]].costs[base[m] + index(value) * stride[m].back()];
        }
        if (is_impossible(sum)) sum = kImpossible;
        if (sum < least) {
          least = sum;
          best = value;
        }
      }
      result.costs[entry] = least;
      record.best[entry] = best;
      advance(record.scope, stride, &at, &base);
    }
    replace(members, std::move(result));
    eliminated_.push_back(std::move(record));
  }

  // Steps to the next combination, the last variable fastest.
  void advance(const std::vector<int>& scope, const std::vector<std::vector<size_t>>& stride,
               std::vector<int>* at, std::vector<size_t>* base) const {
    for (size_t i = scope.size(); i-- > 0;) {
      for (size_t m = 0; m < stride.size(); ++m) (*base)[m] += stride[m][i];
      if (++(*at)[i] < domains_[index(scope[i])]) return;
      for (size_t m = 0; m < stride.size(); ++m) {
        (*base)[m] -= stride[m][i] * index(domains_[index(scope[i])]);
      }
      (*at)[i] = 0;
    }
  }

  void replace(const std::vector<size_t>& members, CostTable result) {
    for (const size_t t : members) {
      for (const int u : tables_[t].variables) {
        by_variable_[index(u)].erase(t);
        sizes_.erase(u);
      }
      tables_[t] = CostTable{};
    }
    for (const int u : result.variables) by_variable_[index(u)].insert(tables_.size());
    tables_.push_back(std::move(result));
  }

  std::vector<int> trace_back() const {
    std::vector<int> values(domains_.size(), 0);
    for (size_t i = eliminated_.size(); i-- > 0;) {
      const Eliminated& e = eliminated_[i];
      size_t at = 0;
      for (const int v : e.scope) at = at * index(domains_[index(v)]) + index(values[index(v)]);
      values[index(e.variable)] = e.best[at];
    }
    return values;
  }

  const std::vector<int>& domains_;
  std::vector<CostTable> tables_;
  const size_t limit_;
  std::vector<std::set<size_t>> by_variable_;  // the tables that mention it
  std::map<int, double> sizes_;
  std::vector<Eliminated> eliminated_;
};

}  // namespace

std::optional<Assignment> minimise(const std::vector<int>& domains, std::vector<CostTable> tables,
                                   size_t limit) {
  return Eliminator(domains, std::move(tables), limit).run();
}

}  // namespace soybean
