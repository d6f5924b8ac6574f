#include "search/report.h"

#include <algorithm>

namespace soybean {
namespace {

Json choices_json(const Tiling& tiling) {
  Json out = Json::array();
  for (const std::string& text : tiling_texts(tiling)) out.push(Json(text));
  return out;
}

Json bytes_report(const Evaluation& e) {
  Json out = Json::object();
  out.set("forward", Json(e.forward_bytes));
  out.set("backward", Json(e.backward_bytes));
  out.set("total", Json(e.bytes()));
  return out;
}

Json conversions_report(const Program& program, const Evaluation& e) {
  Json out = Json::array();
  const size_t outputs = program.graph().outputs().size();
  for (const PlannedConversion& c : e.conversions) {
    Json item = Json::object();
    item.set("tensor", Json(program.graph().tensor_name(c.tensor)));
    item.set("from", choices_json(c.from));
    item.set("to", choices_json(c.to));
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
    out.push(std::move(item));
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
  plan->set("spatial", Json(result.spatial));
  plan->set("memory", memory_report(e.memory));
  plan->set("conversions", conversions_report(program, e));
}

}  // namespace soybean
