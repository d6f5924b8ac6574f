#include "search/elimination.h"

#include <algorithm>
#include <map>
#include <queue>
#include <set>

namespace soybean {
namespace {

size_t index(int v) { return static_cast<size_t>(v); }

int64_t capped(int64_t cost) { return std::min(cost, kForbidden); }

// The tables without the variables that have no choice, which take no room in them.
std::vector<CostTable> without_constants(const std::vector<int>& domains, std::vector<CostTable> tables) {
  for (CostTable& t : tables) {
    const auto constant = [&domains](int v) { return domains[index(v)] == 1; };
    t.variables.erase(std::remove_if(t.variables.begin(), t.variables.end(), constant), t.variables.end());
  }
  return tables;
}

// ---- orders ------------------------------------------------------------------

// An order of elimination and the entries of all tables that it makes.
struct Order {
  std::vector<int> variables;
  double entries = 0;
};

class Ordering {
 public:
  Ordering(const std::vector<int>& domains, const std::vector<CostTable>& tables, bool least_fill)
      : domains_(domains), least_fill_(least_fill), neighbours_(domains.size()) {
    for (const CostTable& t : tables) connect(t.variables);
  }

  // Gives up, with infinite entries, when they exceed `most`.
  Order run(double most) {
    Order order;
    for (size_t v = 0; v < domains_.size(); ++v) push(static_cast<int>(v));
    std::vector<bool> done(domains_.size(), false);
    while (!queue_.empty()) {
      const auto [score, v] = queue_.top();
      queue_.pop();
      if (done[index(v)] || score != score_[index(v)]) continue;
      done[index(v)] = true;
      order.variables.push_back(v);
      order.entries += table_entries(v) * domains_[index(v)];
      if (order.entries > most) break;
      eliminate(v);
    }
    return order;
  }

 private:
  using Scored = std::pair<double, int>;

  void connect(const std::vector<int>& variables) {
    for (const int a : variables) {
      std::vector<int>& around = neighbours_[index(a)];
      for (const int b : variables) {
        if (a == b) continue;
        const auto at = std::lower_bound(around.begin(), around.end(), b);
        if (at == around.end() || *at != b) around.insert(at, b);
      }
    }
  }

  double table_entries(int v) const {
    double n = 1;
    for (const int other : neighbours_[index(v)]) n *= domains_[index(other)];
    return n;
  }

  // The entries of the pairs that eliminating v would newly connect.
  double fill(int v) const {
    double n = 0;
    const std::vector<int>& around = neighbours_[index(v)];
    for (size_t i = 0; i < around.size(); ++i) {
      const std::vector<int>& of_first = neighbours_[index(around[i])];
      for (size_t j = i + 1; j < around.size(); ++j) {
        if (std::binary_search(of_first.begin(), of_first.end(), around[j])) continue;
        n += static_cast<double>(domains_[index(around[i])]) * domains_[index(around[j])];
      }
    }
    return n;
  }

  void push(int v) {
    score_.resize(domains_.size());
    score_[index(v)] = least_fill_ ? fill(v) : table_entries(v) * domains_[index(v)];
    queue_.emplace(score_[index(v)], v);
  }

  void eliminate(int v) {
    const std::vector<int> around = std::move(neighbours_[index(v)]);
    neighbours_[index(v)].clear();
    for (const int u : around) {
      std::vector<int>& of_other = neighbours_[index(u)];
      of_other.erase(std::lower_bound(of_other.begin(), of_other.end(), v));
    }
    connect(around);
    std::vector<int> changed = around;
    if (least_fill_) {
      for (const int u : around) changed.insert(changed.end(), neighbours_[index(u)].begin(), neighbours_[index(u)].end());
      std::sort(changed.begin(), changed.end());
      changed.erase(std::unique(changed.begin(), changed.end()), changed.end());
    }
    for (const int u : changed) push(u);
  }

  const std::vector<int>& domains_;
  const bool least_fill_;
  std::vector<std::vector<int>> neighbours_;  // ascending
  std::vector<double> score_;
  std::priority_queue<Scored, std::vector<Scored>, std::greater<Scored>> queue_;
};

// Tables of fewer entries than this altogether need no better order.
constexpr double kSmallOrder = 1e6;

std::vector<int> best_order(const std::vector<int>& domains, const std::vector<CostTable>& tables) {
  Order by_size = Ordering(domains, tables, false).run(1e300);
  if (by_size.entries < kSmallOrder) return by_size.variables;
  Order by_fill = Ordering(domains, tables, true).run(by_size.entries);
  return by_fill.entries < by_size.entries ? by_fill.variables : by_size.variables;
}

// ---- tables ------------------------------------------------------------------

// The sum of some tables over a list of variables, the last of which varies
// fastest, computed row by row: one row for each combination of all but the last.
class Rows {
 public:
  Rows(const std::vector<int>& domains, std::vector<int> variables)
      : domains_(domains), variables_(std::move(variables)), row_(index(domains[index(variables_.back())])) {
    for (size_t i = 0; i + 1 < variables_.size(); ++i) count_ *= index(domains_[index(variables_[i])]);
    at_.assign(variables_.size() - 1, 0);
  }

  void add(const CostTable& table) {
    Member m;
    m.stride.assign(variables_.size(), 0);
    size_t stride = 1;
    for (size_t i = table.variables.size(); i-- > 0;) {
      const auto it = std::find(variables_.begin(), variables_.end(), table.variables[i]);
      m.stride[static_cast<size_t>(it - variables_.begin())] = stride;
      stride *= index(domains_[index(table.variables[i])]);
    }
    m.costs = table.costs->data();
    members_.push_back(std::move(m));
  }

  size_t count() const { return count_; }

  // The next row; call count() times.
  const std::vector<int64_t>& next() {
    std::fill(row_.begin(), row_.end(), 0);
    size_t added = 0;
    for (const Member& m : members_) {
      const size_t step = m.stride.back();
      const int64_t* costs = m.costs + m.base;
      if (step == 1) {
        for (size_t v = 0; v < row_.size(); ++v) row_[v] += costs[v];
      } else {
        for (size_t v = 0; v < row_.size(); ++v) row_[v] += costs[v * step];
      }
      if (++added % kUncapped == 0) cap();
    }
    cap();
    advance();
    return row_;
  }

 private:
  struct Member {
    std::vector<size_t> stride;
    const int64_t* costs = nullptr;
    size_t base = 0;
  };

  // So many sums of what is forbidden do not overflow.
  static constexpr size_t kUncapped = 100;
  void cap() {
    for (int64_t& cost : row_) cost = capped(cost);
  }

  void advance() {
    for (size_t i = at_.size(); i-- > 0;) {
      const int domain = domains_[index(variables_[i])];
      for (Member& m : members_) m.base += m.stride[i];
      if (++at_[i] < domain) return;
      for (Member& m : members_) m.base -= m.stride[i] * index(domain);
      at_[i] = 0;
    }
  }

  const std::vector<int>& domains_;
  const std::vector<int> variables_;
  std::vector<int64_t> row_;
  size_t count_ = 1;
  std::vector<int> at_;
  std::vector<Member> members_;
};

double entries_of(const std::vector<int>& domains, const std::vector<int>& scope) {
  double n = 1;
  for (const int v : scope) n *= domains[index(v)];
  return n;
}

// The tables from which a variable is eliminated at once, and what that leaves.
struct Bucket {
  int variable = -1;
  std::vector<int> tables;  // into Elimination::tables_
  std::vector<int> scope;   // their other variables, the last eliminated first
  int message = -1;         // the resulting table
  // For each combination of the scope the variable's best value, where the bucket is the
  // variable's only one; its tables are gone then.
  std::shared_ptr<const std::vector<uint16_t>> best;
};

// Layers repeat, and so do the buckets that they leave: the same tables over variables
// that are tied in the same way give the same message.
class Repetitions {
 public:
  struct Result {
    std::shared_ptr<const std::vector<int64_t>> message;
    std::shared_ptr<const std::vector<uint16_t>> best;
    std::vector<CostTable> tables;  // kept, so that their addresses stay theirs
  };
  using Key = std::vector<size_t>;

  const Result* find(const Key& key) const {
    const auto it = known_.find(key);
    return it == known_.end() ? nullptr : &it->second;
  }
  void note(Key key, Result result) {
    bytes_ += result.message->size() * sizeof(int64_t);
    if (bytes_ > kMostBytes) return;
    known_.emplace(std::move(key), std::move(result));
  }

 private:
  static constexpr size_t kMostBytes = size_t{64} << 20;

  std::map<Key, Result> known_;
  size_t bytes_ = 0;
};

class Elimination {
 public:
  // `keep_tables`: for marginals().
  Elimination(const std::vector<int>& domains, const std::vector<CostTable>& tables, size_t limit,
              bool keep_tables)
      : domains_(domains),
        tables_(without_constants(domains, tables)),
        originals_(tables.size()),
        limit_(limit),
        keep_tables_(keep_tables) {
    const std::vector<int> order = best_order(domains, tables_);
    position_.resize(domains.size());
    for (size_t i = 0; i < order.size(); ++i) position_[index(order[i])] = static_cast<int>(i);
    by_variable_.resize(domains.size());
    for (size_t t = 0; t < tables_.size(); ++t) place(static_cast<int>(t));
    for (const int v : order) {
      const std::vector<std::vector<int>> all = groups(v);
      for (const std::vector<int>& group : all) run(v, group, all.size() == 1 && !keep_tables_);
    }
  }

  bool exact() const { return exact_; }

  Solution solution() const {
    Solution s;
    s.lower_bound = capped(constant_);
    s.values.assign(domains_.size(), 0);
    std::vector<bool> known(domains_.size(), false);
    // The buckets of one variable stand side by side.
    for (size_t end = buckets_.size(); end > 0;) {
      const int v = buckets_[end - 1].variable;
      size_t begin = end;
      while (begin > 0 && buckets_[begin - 1].variable == v) --begin;
      const Bucket& bucket = buckets_[begin];
      s.values[index(v)] = bucket.best == nullptr ? best_value(v, begin, end, &s.values)
                                                  : (*bucket.best)[place_of(bucket.scope, s.values)];
      end = begin;
    }
    for (size_t t = 0; t < originals_; ++t) s.cost = capped(s.cost + entry(tables_[t], s.values));
    s.width = width_;
    return s;
  }

  std::vector<std::vector<int64_t>> marginals() const {
    std::vector<std::vector<int64_t>> out(domains_.size());
    std::vector<CostTable> from_above(buckets_.size());  // what the rest costs, over the scope
    for (size_t b = buckets_.size(); b-- > 0;) marginal(b, &from_above, &out);
    return out;
  }

 private:
  // A table waits in the bucket of its variable that is eliminated first.
  void place(int t) {
    const std::vector<int>& variables = tables_[index(t)].variables;
    if (variables.empty()) {
      constant_ += tables_[index(t)].costs->at(0);
      return;
    }
    by_variable_[index(*std::min_element(variables.begin(), variables.end(), earlier()))].push_back(t);
  }

  struct Earlier {
    const std::vector<int>& position;
    bool operator()(int a, int b) const { return position[index(a)] < position[index(b)]; }
  };
  Earlier earlier() const { return {position_}; }

  // The tables of v, together where that stays within the limit.
  std::vector<std::vector<int>> groups(int v) {
    std::vector<int> tables = std::move(by_variable_[index(v)]);
    if (entries_of(domains_, scope_of(tables)) <= static_cast<double>(limit_)) return {tables};
    std::vector<std::vector<int>> out;
    std::vector<std::set<int>> scopes;
    std::stable_sort(tables.begin(), tables.end(), [this](int a, int b) {
      return tables_[index(a)].costs->size() > tables_[index(b)].costs->size();
    });
    for (const int t : tables) {
      const std::vector<int>& own = tables_[index(t)].variables;
      size_t g = 0;
      for (; g < out.size(); ++g) {
        std::set<int> together = scopes[g];
        together.insert(own.begin(), own.end());
        if (entries_of(domains_, {together.begin(), together.end()}) > static_cast<double>(limit_)) continue;
        scopes[g] = std::move(together);
        break;
      }
      if (g == out.size()) {
        out.emplace_back();
        scopes.emplace_back(own.begin(), own.end());
      }
      out[g].push_back(t);
    }
    exact_ = exact_ && out.size() <= 1;
    return out;
  }

  // The variables of some tables, ascending.
  std::vector<int> scope_of(const std::vector<int>& tables) const {
    std::vector<int> scope;
    for (const int t : tables) {
      scope.insert(scope.end(), tables_[index(t)].variables.begin(), tables_[index(t)].variables.end());
    }
    std::sort(scope.begin(), scope.end());
    scope.erase(std::unique(scope.begin(), scope.end()), scope.end());
    return scope;
  }

  void run(int v, const std::vector<int>& group, bool decide) {
    Bucket bucket;
    bucket.variable = v;
    bucket.tables = group;
    bucket.scope = scope_of(group);
    bucket.scope.erase(std::remove(bucket.scope.begin(), bucket.scope.end(), v), bucket.scope.end());
    std::sort(bucket.scope.begin(), bucket.scope.end(), [this](int a, int b) { return earlier()(b, a); });
    width_ = std::max(width_, static_cast<int>(bucket.scope.size()) + 1);

    Repetitions::Key key = key_of(bucket, decide);
    const Repetitions::Result* known = repetitions_.find(key);
    Repetitions::Result result = known != nullptr ? *known : eliminated(bucket, decide);
    if (known == nullptr) repetitions_.note(std::move(key), result);
    bucket.best = result.best;
    for (const int t : group) {
      if (decide && index(t) >= originals_) tables_[index(t)].costs.reset();
    }
    bucket.message = static_cast<int>(tables_.size());
    tables_.push_back({bucket.scope, result.message});
    place(bucket.message);
    buckets_.push_back(std::move(bucket));
  }

  // What decides a bucket's message: its tables, which variables they share, and the
  // domains.
  Repetitions::Key key_of(const Bucket& bucket, bool decide) const {
    Repetitions::Key key{decide, index(domains_[index(bucket.variable)])};
    for (const int v : bucket.scope) key.push_back(index(domains_[index(v)]));
    for (const int t : bucket.tables) {
      const CostTable& table = tables_[index(t)];
      key.push_back(reinterpret_cast<size_t>(table.costs.get()));
      for (const int v : table.variables) {
        const auto at = std::find(bucket.scope.begin(), bucket.scope.end(), v);
        key.push_back(static_cast<size_t>(at - bucket.scope.begin()));  // behind all for the bucket's own
      }
    }
    return key;
  }

  Repetitions::Result eliminated(const Bucket& bucket, bool decide) const {
    Rows rows = rows_of(bucket);
    std::vector<int64_t> least(rows.count());
    std::vector<uint16_t> values(decide ? rows.count() : 0);
    for (size_t i = 0; i < least.size(); ++i) {
      const std::vector<int64_t>& row = rows.next();
      const auto best = std::min_element(row.begin(), row.end());
      least[i] = *best;
      if (decide) values[i] = static_cast<uint16_t>(best - row.begin());
    }
    Repetitions::Result result;
    result.message = std::make_shared<const std::vector<int64_t>>(std::move(least));
    if (decide) result.best = std::make_shared<const std::vector<uint16_t>>(std::move(values));
    for (const int t : bucket.tables) result.tables.push_back(tables_[index(t)]);
    return result;
  }

  Rows rows_of(const Bucket& bucket) const {
    std::vector<int> variables = bucket.scope;
    variables.push_back(bucket.variable);
    Rows rows(domains_, std::move(variables));
    for (const int t : bucket.tables) rows.add(tables_[index(t)]);
    return rows;
  }

  size_t place_of(const std::vector<int>& variables, const std::vector<int>& values) const {
    size_t at = 0;
    for (const int v : variables) at = at * index(domains_[index(v)]) + index(values[index(v)]);
    return at;
  }

  int64_t entry(const CostTable& table, const std::vector<int>& values) const {
    return (*table.costs)[place_of(table.variables, values)];
  }

  // The value of v that is best for its buckets, given what was decided after it.
  int best_value(int v, size_t begin, size_t end, std::vector<int>* values) const {
    int best = 0;
    int64_t least = -1;
    for (int value = 0; value < domains_[index(v)]; ++value) {
      (*values)[index(v)] = value;
      int64_t cost = 0;
      for (size_t b = begin; b < end; ++b) {
        for (const int t : buckets_[b].tables) cost = capped(cost + entry(tables_[index(t)], *values));
      }
      if (least < 0 || cost < least) {
        least = cost;
        best = value;
      }
    }
    return best;
  }

  // The marginal of a bucket's variable, and for each bucket whose message it holds
  // what the rest of the problem costs beside that message.
  void marginal(size_t b, std::vector<CostTable>* from_above,
                std::vector<std::vector<int64_t>>* out) const {
    const Bucket& bucket = buckets_[b];
    Rows rows = rows_of(bucket);
    CostTable& above = (*from_above)[b];
    if (above.costs == nullptr) {  // nothing else mentions what this one mentions
      const int64_t rest = constant_ - (bucket.scope.empty() ? tables_[index(bucket.message)].costs->at(0) : 0);
      above = {{}, std::make_shared<const std::vector<int64_t>>(1, rest)};
    }
    rows.add(above);
    std::vector<std::vector<int64_t>> below;
    std::vector<size_t> children;
    for (size_t c = 0; c < b; ++c) {
      if (std::find(bucket.tables.begin(), bucket.tables.end(), buckets_[c].message) == bucket.tables.end()) continue;
      children.push_back(c);
      below.emplace_back(tables_[index(buckets_[c].message)].costs->size(), kForbidden);
    }
    std::vector<int64_t>& marginal = (*out)[index(bucket.variable)];
    marginal.assign(index(domains_[index(bucket.variable)]), kForbidden);
    std::vector<int> values(domains_.size(), 0);
    for (size_t r = 0; r < rows.count(); ++r) {
      const std::vector<int64_t>& row = rows.next();
      for (size_t value = 0; value < row.size(); ++value) {
        marginal[value] = std::min(marginal[value], row[value]);
        values[index(bucket.variable)] = static_cast<int>(value);
        for (size_t c = 0; c < children.size(); ++c) {
          const CostTable& message = tables_[index(buckets_[children[c]].message)];
          const size_t at = place_of(message.variables, values);
          const int64_t rest = row[value] >= kForbidden ? kForbidden : row[value] - (*message.costs)[at];
          below[c][at] = std::min(below[c][at], rest);
        }
      }
      for (size_t i = bucket.scope.size(); i-- > 0;) {
        int& v = values[index(bucket.scope[i])];
        if (++v < domains_[index(bucket.scope[i])]) break;
        v = 0;
      }
    }
    for (size_t c = 0; c < children.size(); ++c) {
      (*from_above)[children[c]] = {buckets_[children[c]].scope,
                                    std::make_shared<const std::vector<int64_t>>(std::move(below[c]))};
    }
  }

  const std::vector<int>& domains_;
  std::vector<CostTable> tables_;  // the problem's, then the messages
  const size_t originals_;
  const size_t limit_;
  const bool keep_tables_;
  std::vector<int> position_;  // in the order of elimination
  std::vector<std::vector<int>> by_variable_;
  std::vector<Bucket> buckets_;
  Repetitions repetitions_;
  int64_t constant_ = 0;
  int width_ = 0;
  bool exact_ = true;
};

}  // namespace

Solution minimise(const std::vector<int>& domains, const std::vector<CostTable>& tables,
                  size_t limit) {
  const Elimination elimination(domains, tables, limit, false);
  return elimination.solution();
}

std::vector<std::vector<int64_t>> min_marginals(const std::vector<int>& domains,
                                                const std::vector<CostTable>& tables,
                                                size_t limit) {
  const Elimination elimination(domains, tables, limit, true);
  if (!elimination.exact()) return {};
  return elimination.marginals();
}

}  // namespace soybean
