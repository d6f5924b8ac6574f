#include "lower/buckets.h"

#include <algorithm>
#include <map>
#include <tuple>

namespace soybean {
namespace {

// Into how many ranges a tiling divides dim 0.
int64_t ranges(const Mesh& mesh, const Tiling& tiling) {
  int64_t parts = 1;
  for (const int cut : tiling.cuts_of(0)) parts *= mesh.parts(cut);
  return parts;
}

class Finder {
 public:
  Finder(const Program& program, const Plan& plan) : program_(program), plan_(plan) {}

  std::vector<Bucket> run() {
    count_uses();
    const std::vector<Node>& nodes = graph().nodes();
    for (size_t i = 0; i < nodes.size(); ++i) {
      for (size_t k = 0; k < nodes[i].inputs.size(); ++k) consider(static_cast<int>(i), k);
    }
    std::vector<Bucket> out;
    for (Bucket& bucket : buckets_) {
      if (bucket.variables.size() > 1) out.push_back(std::move(bucket));
    }
    return out;
  }

 private:
  const Graph& graph() const { return program_.graph(); }

  void count_uses() {
    for (const Node& node : graph().nodes()) {
      for (const Entry& e : node.inputs) ++uses_[e];
    }
    for (const Entry& e : program_.results()) ++uses_[e];
  }

  void consider(int user, size_t input) {
    const Entry e = graph().node(user).inputs[input];
    const Node& variable = graph().node(e.node);
    const Rule& rule = program_.rules[static_cast<size_t>(user)];
    if (!variable.is_variable() || variable.role != Role::kParameter || uses_.at(e) != 1) return;
    if (!rule.known || takes_variable_only(graph(), user, input)) return;
    const TensorType& type = variable.outputs[0];
    if (type.shape.size() != 1 || type.shape[0] > kBucketElements) return;
    const Tiling from = plan_.tensors.at(e);
    const Tiling to = input_tiling(rule, input, plan_.operators[static_cast<size_t>(user)]);
    if (from == to || from.has(kPartial) || to.has(kPartial)) return;
    const int64_t before = ranges(plan_.mesh, from), after = ranges(plan_.mesh, to);
    const int64_t rows = std::max(before, after);
    if (rows % std::min(before, after) != 0 || type.shape[0] % rows != 0) return;
    const auto key = std::make_tuple(from, to, type.itemsize, program_.requires_grad(e));
    const auto [open, fresh] = open_.emplace(key, buckets_.size());
    if (!fresh && buckets_[open->second].variables.size() == kBucketMembers) open->second = buckets_.size();
    if (open->second == buckets_.size()) {
      buckets_.push_back({{}, from, to, rows, {{rows, 0}, type.itemsize}});
    }
    Bucket& bucket = buckets_[open->second];
    bucket.variables.push_back(e.node);
    bucket.type.shape[1] += type.shape[0] / rows;
  }

  const Program& program_;
  const Plan& plan_;
  std::map<Entry, int> uses_;
  std::map<std::tuple<Tiling, Tiling, int, bool>, size_t> open_;  // the last bucket of a kind
  std::vector<Bucket> buckets_;
};

}  // namespace

std::vector<Bucket> find_buckets(const Program& program, const Plan& plan) {
  if (plan.whole_boundary) return {};
  return Finder(program, plan).run();
}

}  // namespace soybean
