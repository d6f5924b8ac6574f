#include "pipeline/stages.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <limits>

#include "graph/graph.h"

namespace soybean {
namespace {

// Bounds on the number of cuts, so that a search takes a second at most on 16 devices: its
// time grows with their square, or, where an inner level is planned from each cut, their
// third power; under a memory limit, from each cut and for each place in the pipeline.
constexpr size_t kMostCuts = 2000, kMostCutsOfLevels = 600, kMostCutsOfLimitedLevels = 330,
                 kMostCutsOfManyLimitedLevels = 96;

StageCost read_cost(const Json& options) {
  const Json* value = options.find("cost_model");
  const std::string name = value == nullptr ? "overlap" : value->as_string("option cost_model");
  if (name == "released") return StageCost::kReleased;
  if (name == "v1") return StageCost::kV1;
  if (name == "sosp") return StageCost::kSosp;
  if (name == "overlap") return StageCost::kOverlap;
  throw Error("option cost_model is '" + name + "': 'released', 'v1', 'sosp' or 'overlap' are possible");
}

StageOptions read_options(const Json& json) {
  StageOptions options;
  options.cost = read_cost(json);
  const Json* limit = json.find("memory_limit");
  if (limit != nullptr && !limit->is_null()) {
    options.memory_limit = limit->as_real("option memory_limit");
    if (!(options.memory_limit > 0)) throw Error("option memory_limit is not positive: give a number of bytes");
  }
  const Json* states = json.find("optimizer_states");
  if (states != nullptr && !states->is_null()) {
    const int64_t count = states->as_int("option optimizer_states");
    if (count < 0 || count > 100) {
      throw Error("option optimizer_states is " + std::to_string(count) + ": 0 to 100 are possible");
    }
    options.optimizer_states = static_cast<int>(count);
  }
  return options;
}

size_t most_cuts(const StageOptions& options, const Servers& servers) {
  const bool flat = options.cost == StageCost::kOverlap || options.cost == StageCost::kV1;
  if (flat || servers.levels() == 1) return kMostCuts;
  if (options.memory_limit == 0) return kMostCutsOfLevels;
  return servers.levels() == 2 ? kMostCutsOfLimitedLevels : kMostCutsOfManyLimitedLevels;
}

std::string bytes_text(double bytes) { return std::to_string(static_cast<int64_t>(std::min(bytes, 9e18))); }

Json layers_json(const LayerGraph& graph, const CutSet& cuts, const Stage& stage) {
  std::vector<int64_t> positions;
  for (int i = 0; i < graph.size(); ++i) {
    if (cuts.layers(stage.to).has(i) && !cuts.layers(stage.from).has(i)) positions.push_back(graph.layer(i).position);
  }
  return json_array(positions);
}

Json memory_json(const StageMemory& memory) {
  Json out = Json::object();
  out.set("weights", Json(memory.weights));
  out.set("stashed", Json(memory.stashed));
  out.set("gradients", Json(memory.gradients));
  out.set("optimizer", Json(memory.optimizer));
  out.set("activations", Json(memory.activations));
  out.set("total", Json(memory.total()));
  return out;
}

Json groups_json(const std::vector<StageGroup>& groups) {
  Json out = Json::array();
  for (const StageGroup& group : groups) {
    Json item = Json::object();
    item.set("replicas", Json(group.replicas));
    if (!group.within.empty()) item.set("stages", groups_json(group.within));
    out.push(std::move(item));
  }
  return out;
}

Json stage_json(const LayerGraph& graph, const CutSet& cuts, const Stage& stage) {
  Json out = Json::object();
  out.set("layers", layers_json(graph, cuts, stage));
  out.set("replicas", Json(stage.replicas));
  out.set("first_device", Json(stage.first_device));
  out.set("seconds", Json(stage.seconds));
  out.set("compute_seconds", Json(cuts[stage.to].seconds - cuts[stage.from].seconds));
  out.set("received_bytes", Json(stage.from == 0 ? 0.0 : cuts[stage.from].crossing));
  out.set("in_flight", Json(stage.in_flight));
  out.set("versions", Json(stage.in_flight));
  out.set("memory", memory_json(stage.memory));
  return out;
}

}  // namespace

int minibatches_in_flight(int devices, int earlier, int replicas) { return (devices - 1 - earlier) / replicas + 1; }

StageMemory stage_memory(const CutSet& cuts, size_t from, size_t to, int in_flight, int optimizer_states) {
  const Cut &before = cuts[from], &behind = cuts[to];
  StageMemory memory;
  memory.weights = behind.parameters - before.parameters;
  memory.stashed = memory.weights * (in_flight - 1);
  memory.gradients = memory.weights;
  memory.optimizer = memory.weights * optimizer_states;
  const double received = from == 0 ? 0 : before.crossing;
  memory.activations = (behind.activations - before.activations + received) * in_flight;
  return memory;
}

StagePlan plan_stages(const CutSet& cuts, const Servers& servers, const StageOptions& options) {
  const bool overlap = options.cost == StageCost::kOverlap;
  StagePlan plan = overlap ? plan_across_servers(cuts, servers, options) : plan_levels(cuts, servers, options);
  if (plan.stages.empty()) {
    throw Error("no pipeline of these layers on " + std::to_string(servers.devices()) +
                " devices fits into the memory limit of " + bytes_text(options.memory_limit) +
                " bytes per device: give a larger limit, more devices, or a profile of a smaller minibatch");
  }
  return plan;
}

Json stages_json(const Json& profile, const Json& json) {
  const StageOptions options = read_options(json);
  const Servers servers = Servers::read(json.at("levels", "the options"));
  const LayerGraph graph(profile);
  const auto start = std::chrono::steady_clock::now();
  const CutSet::Kind kind =
      options.cost == StageCost::kReleased ? CutSet::Kind::kReleased : CutSet::Kind::kExact;
  const CutSet cuts(graph, kind, most_cuts(options, servers));
  const StagePlan plan = plan_stages(cuts, servers, options);
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;

  const Cut& all = cuts[cuts.size() - 1];
  const double exchange = all.parameters * servers.exchange_seconds_per_byte(0, servers.devices());
  Json stages = Json::array(), boundaries = Json::array();
  for (const Stage& stage : plan.stages) stages.push(stage_json(graph, cuts, stage));
  for (const double boundary : plan.boundaries) boundaries.push(Json(boundary));
  Json out = Json::object();
  out.set("devices", Json(servers.devices()));
  out.set("stages", std::move(stages));
  out.set("groups", groups_json(plan.groups));
  out.set("boundary_seconds", std::move(boundaries));
  out.set("seconds", Json(plan.seconds));
  out.set("lower_bound", Json(all.seconds / servers.devices()));
  out.set("one_device_seconds", Json(all.seconds));
  out.set("data_parallel_seconds", Json((all.seconds + exchange) / servers.devices()));
  out.set("overlapped_data_parallel_seconds", Json(std::max(all.seconds, exchange) / servers.devices()));
  out.set("cuts", Json(static_cast<int64_t>(cuts.size())));
  out.set("all_cuts", Json(cuts.complete()));
  out.set("search_seconds", Json(seconds.count()));
  return out;
}

}  // namespace soybean
