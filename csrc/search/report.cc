#include "search/report.h"

#include <algorithm>

#include "rules/rule_json.h"
#include "search/problem.h"

namespace soybean {
namespace {

Json bytes_report(const Evaluation& e) {
  Json out = Json::object();
  out.set("forward", Json(e.forward_bytes));
  out.set("backward", Json(e.backward_bytes));
  out.set("total", Json(e.bytes()));
  out.set("halo", Json(e.halo_bytes));
  out.set("statistics", Json(e.statistics_bytes));
  return out;
}

Json conversions_report(const Program& program, const Evaluation& e) {
  Json out = Json::array();
  const size_t outputs = program.graph().outputs().size();
  for (const PlannedConversion& c : e.conversions) {
    Json item = Json::object();
    item.set("tensor", Json(program.graph().tensor_name(c.tensor)));
    item.set("from", tiling_json(c.from));
    item.set("to", tiling_json(c.to));
    if (c.user >= 0) {
      item.set("user", Json(program.graph().node(c.user).name));
    } else if (c.result >= 0) {
      const size_t r = static_cast<size_t>(c.result);
      item.set("user", Json((r < outputs ? "output " : "statistic ") + std::to_string(r < outputs ? r : r - outputs)));
    } else {
      item.set("user", Json());
    }
    item.set("bytes", Json(c.forward.bytes * c.ways));
    item.set("seconds", Json(c.seconds));
    out.push(Json::written(item.text()));
  }
  return out;
}

Json memory_report(const Memory& m) {
  Json out = Json::object();
  out.set("parameters", Json(m.parameters));
  out.set("gradients", Json(m.gradients));
  out.set("optimizer", Json(m.optimizer));
  out.set("inputs", Json(m.inputs));
  out.set("activations", Json(m.activations));
  out.set("conversions", Json(m.conversions));
  out.set("workspace", Json(m.workspace));
  out.set("peak", Json(m.peak()));
  return out;
}

}  // namespace

void add_report(const Program& program, const SearchOptions& options, const SearchResult& result,
                Json* plan) {
  const Evaluation& e = result.evaluation;
  plan->set("bytes", bytes_report(e));
  plan->set("messages", Json(e.messages));
  plan->set("objective", Json(options.time ? "time" : "bytes"));
  const double unit = options.time ? 1e-12 : 1;
  plan->set("objective_value", options.time ? Json(static_cast<double>(result.objective) * unit) : Json(result.objective));
  plan->set("lower_bound", options.time ? Json(static_cast<double>(result.lower_bound) * unit) : Json(result.lower_bound));
  plan->set("lower_bound_bytes", Json(result.lower_bound_bytes));
  const double over = static_cast<double>(result.objective - result.lower_bound);
  plan->set("gap", Json(over <= 0 ? 0.0 : over / std::max(1.0, static_cast<double>(result.lower_bound))));
  if (options.topology) {
    Json seconds = Json::object();
    seconds.set("communication", Json(e.communication_seconds));
    seconds.set("compute", Json(e.compute_seconds));
    seconds.set("total", Json(e.communication_seconds + e.compute_seconds));
    plan->set("predicted_seconds", std::move(seconds));
  }
  int nodes = 0;
  for (const Node& node : program.graph().nodes()) nodes += node.is_variable() ? 0 : 1;
  plan->set("nodes", Json(nodes));
  plan->set("width", Json(result.width));
  plan->set("limited", Json(result.limited));
  plan->set("spatial", Json(result.spatial));
  plan->set("memory", memory_report(e.memory));
  if (options.memory_by_device) {
    Json devices = Json::array();
    for (const Memory& m : result.memory_by_device) devices.push(memory_report(m));
    plan->set("memory_by_device", std::move(devices));
  }
  plan->set("conversions", conversions_report(program, e));
}

namespace {

Json entry_json(Entry e) {
  Json out = Json::array();
  out.push(Json(e.node));
  out.push(Json(e.index));
  return out;
}

Json divisions_json(const std::vector<Division>& divisions) {
  Json out = Json::array();
  for (const Division& d : divisions) {
    Json choices = Json::array();
    for (const int c : d) choices.push(Json(c));
    out.push(std::move(choices));
  }
  return out;
}

const char* role_text(Role role) {
  switch (role) {
    case Role::kInput: return "input";
    case Role::kParameter: return "parameter";
    case Role::kAuxiliary: return "auxiliary";
    default: return "intermediate";
  }
}

Json node_json(const Program& program, const Domains& domains, size_t i) {
  const Node& node = program.graph().nodes()[i];
  Json out = Json::object();
  out.set("name", Json(node.name));
  out.set("op", Json(node.op));
  out.set("role", Json(role_text(node.role)));
  Json inputs = Json::array(), outputs = Json::array();
  for (const Entry& e : node.inputs) inputs.push(entry_json(e));
  for (const TensorType& type : node.outputs) {
    Json output = Json::object();
    output.set("shape", json_array(type.shape));
    output.set("itemsize", Json(type.itemsize));
    outputs.push(std::move(output));
  }
  out.set("inputs", std::move(inputs));
  out.set("outputs", std::move(outputs));
  out.set("requires_grad", Json(program.gradients[i]));
  if (node.is_variable()) return out;
  out.set("rule", Json::parse(rule_json(program.rules[i])));
  out.set("choices", divisions_json(domains.operators[i]));
  return out;
}

}  // namespace

Json space_json(const Program& program, const SearchOptions& options) {
  const Mesh mesh = mesh_of(options);
  const Space space(program, mesh, space_options(program, options));
  const Domains domains = domains_of(space, {});
  Json cuts = Json::array(), nodes = Json::array(), tensors = Json::array(), results = Json::array();
  for (int c = 0; c < mesh.cut_count(); ++c) cuts.push(Json(mesh.parts(c)));
  for (size_t i = 0; i < program.graph().nodes().size(); ++i) nodes.push(node_json(program, domains, i));
  for (const Node& node : program.graph().nodes()) {
    const int i = static_cast<int>(&node - program.graph().nodes().data());
    for (size_t k = 0; k < node.outputs.size(); ++k) {
      const Entry e{i, static_cast<int>(k)};
      const bool held = domains.tensors.count(e) > 0;
      if (!held && !node.is_variable()) continue;
      Json item = Json::object();
      item.set("tensor", entry_json(e));
      item.set("choices", divisions_json(held ? domains.tensors.at(e) : space.tensor_tilings(e)));
      tensors.push(std::move(item));
    }
  }
  for (size_t r = 0; r < space.results().size(); ++r) {
    Json item = Json::object();
    item.set("tensor", entry_json(space.results()[r]));
    item.set("choices", divisions_json(domains.results[r]));
    results.push(std::move(item));
  }
  Json out = Json::object();
  out.set("cuts", std::move(cuts));
  out.set("nodes", std::move(nodes));
  out.set("tensors", std::move(tensors));
  out.set("results", std::move(results));
  return out;
}

}  // namespace soybean
