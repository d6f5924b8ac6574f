#include "c_api.h"

#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <new>
#include <stdexcept>
#include <string>
#include <vector>

#include "lower/local_fills.h"
#include "lower/lower.h"
#include "lower/write_out.h"
#include "pipeline/stages.h"
#include "rules/rule_json.h"
#include "search/report.h"

namespace {

thread_local std::string last_error;

struct Stamp {
  std::atomic<int64_t> time{0};
  std::atomic<int64_t> holders{1};
};
using Guard = std::vector<void*>;

// Runs `body` and hands its text out; every exception becomes a message.
int guarded(char** out, const std::function<std::string()>& body) {
  try {
    if (out == nullptr) throw soybean::Error("the output pointer is null");
    *out = nullptr;
    const std::string text = body();
    char* copy = static_cast<char*>(std::malloc(text.size() + 1));
    if (copy == nullptr) throw std::bad_alloc();
    std::memcpy(copy, text.c_str(), text.size() + 1);
    *out = copy;
    return 0;
  } catch (const std::bad_alloc&) {
    last_error = "out of memory";
  } catch (const std::exception& e) {
    last_error = e.what();
  } catch (...) {
    last_error = "unknown error";
  }
  return -1;
}

std::string text_argument(const char* text, const char* name) {
  if (text == nullptr) throw soybean::Error(std::string(name) + " is null");
  return text;
}

std::string string_option(const soybean::Json& options, const char* key, const char* fallback) {
  const soybean::Json* value = options.find(key);
  return value == nullptr ? fallback : value->as_string(std::string("option ") + key);
}

soybean::Ordering ordering_option(const soybean::Json& options) {
  const std::string order = string_option(options, "order", "scheduled");
  if (order == "scheduled") return soybean::Ordering::kScheduled;
  if (order == "serial") return soybean::Ordering::kSerial;
  throw soybean::Error("option order is '" + order + "': 'scheduled' or 'serial' are possible");
}

bool bool_option(const soybean::Json& options, const char* key) {
  const soybean::Json* value = options.find(key);
  return value != nullptr && !value->is_null() && value->as_bool(std::string("option ") + key);
}

int64_t count_option(const soybean::Json& options, const char* key) {
  const soybean::Json* value = options.find(key);
  if (value == nullptr || value->is_null()) return 0;
  const int64_t n = value->as_int(std::string("option ") + key);
  if (n < 0) throw soybean::Error(std::string("option ") + key + " is " + std::to_string(n) + ": it must not be negative");
  return n;
}

soybean::SearchOptions search_options(const soybean::Json& json) {
  soybean::SearchOptions options;
  options.devices = json.at("devices", "the options").as_int("option devices");
  options.strategy = string_option(json, "strategy", "optimal");
  const std::string boundary = string_option(json, "boundary", "tiled");
  if (boundary != "tiled" && boundary != "whole") {
    throw soybean::Error("option boundary is '" + boundary + "': 'tiled' or 'whole' are possible");
  }
  options.whole_boundary = boundary == "whole";
  if (const soybean::Json* pins = json.find("pins")) options.pins = soybean::read_pins(*pins);
  if (const soybean::Json* topology = json.find("topology")) {
    if (!topology->is_null()) options.topology = soybean::read_topology(*topology, options.devices);
  }
  const std::string objective = string_option(json, "objective", "bytes");
  if (objective != "bytes" && objective != "time") {
    throw soybean::Error("option objective is '" + objective + "': 'bytes' or 'time' are possible");
  }
  options.time = objective == "time";
  options.memory_limit = count_option(json, "memory_limit");
  options.optimizer_states = static_cast<int>(count_option(json, "optimizer_states"));
  options.memory_by_device = bool_option(json, "memory_by_device");
  const std::string spatial = string_option(json, "spatial", "auto");
  if (spatial != "auto" && spatial != "yes" && spatial != "no") {
    throw soybean::Error("option spatial is '" + spatial + "': 'auto', 'yes' or 'no' are possible");
  }
  using Spatial = soybean::SearchOptions::Spatial;
  options.spatial = spatial == "yes" ? Spatial::kYes : spatial == "no" ? Spatial::kNo : Spatial::kAuto;
  return options;
}

// Whether SoybeanLower is to write what the devices do without their exchanges.
bool local_conversions(const soybean::Json& options) {
  const std::string conversions = string_option(options, "conversions", "exchanged");
  if (conversions != "exchanged" && conversions != "local") {
    throw soybean::Error("option conversions is '" + conversions + "': 'exchanged' or 'local' are possible");
  }
  return conversions == "local";
}

}  // namespace

int SoybeanVersion(void) { return 2; }

const char* SoybeanLastError(void) { return last_error.c_str(); }

void SoybeanFree(char* text) { std::free(text); }

int SoybeanPlan(const char* graph, const char* options_text, char** out) {
  return guarded(out, [&] {
    const soybean::Json json = soybean::Json::parse(text_argument(options_text, "the options"));
    const std::string batch_norm = string_option(json, "batch_norm", "exact");
    const soybean::SearchOptions options = search_options(json);
    const soybean::Program program =
        soybean::prepare(text_argument(graph, "the graph"), batch_norm);
    const auto start = std::chrono::steady_clock::now();
    soybean::SearchResult result = soybean::search(program, options);
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
    result.plan.batch_norm = batch_norm;
    soybean::Json plan = write_plan(program, result.plan);
    soybean::add_report(program, options, result, &plan);
    plan.set("search_seconds", soybean::Json(seconds.count()));
    return plan.text();
  });
}

int SoybeanLower(const char* graph, const char* plan_text, const char* options, char** out) {
  return guarded(out, [&] {
    const soybean::Json given = soybean::Json::parse(text_argument(options, "the options"));
    const soybean::Ordering ordering = ordering_option(given);
    const bool local = local_conversions(given);
    const soybean::Json json = soybean::Json::parse(text_argument(plan_text, "the plan"));
    const soybean::Program prepared = soybean::prepare(text_argument(graph, "the graph"),
                                                       soybean::plan_batch_norm(json));
    const auto [program, plan] = soybean::write_out(prepared, soybean::read_plan(prepared, json));
    const soybean::Json* devices = given.find("topology");
    const bool copy_engines = bool_option(given, "copy_engines");
    const soybean::Hardware hardware{
        devices == nullptr || devices->is_null()
            ? soybean::default_topology(plan.mesh.devices(), copy_engines)
            : soybean::read_topology(*devices, plan.mesh.devices()),
        copy_engines};
    soybean::ParallelGraph parallel = soybean::lower(program, plan);
    if (local) parallel = soybean::with_local_fills(parallel);
    const soybean::Schedule schedule = soybean::schedule(parallel, hardware, ordering);
    soybean::Json lowered = lowered_json(program, parallel, schedule);
    if (bool_option(given, "timeline")) {
      lowered.set("timeline", timeline_json(parallel, timeline(parallel, hardware, schedule.order)));
    }
    if (bool_option(given, "step")) lowered.set("step", step_json(parallel, hardware, schedule.order));
    return lowered.text();
  });
}

int SoybeanSpace(const char* graph, const char* options_text, char** out) {
  return guarded(out, [&] {
    const soybean::Json json = soybean::Json::parse(text_argument(options_text, "the options"));
    const soybean::SearchOptions options = search_options(json);
    const soybean::Program program =
        soybean::prepare(text_argument(graph, "the graph"), string_option(json, "batch_norm", "exact"));
    return space_json(program, options).text();
  });
}

int SoybeanRules(const char* graph, char** out) {
  return guarded(out, [&] {
    const soybean::SerialProgram program =
        soybean::read_program(text_argument(graph, "the graph"));
    soybean::Json rules = soybean::Json::object();
    for (size_t i = 0; i < program.graph.nodes().size(); ++i) {
      const soybean::Node& node = program.graph.nodes()[i];
      if (node.is_variable()) continue;
      const soybean::Rule rule =
          soybean::find_rule(program.graph, static_cast<int>(i), program.training);
      soybean::Json json = soybean::Json::parse(soybean::rule_json(rule));
      json.set("stops_gradient", soybean::stops_gradient(node.op));
      rules.set(node.name, std::move(json));
    }
    return rules.text();
  });
}

void* SoybeanNewStamp(void) { return new (std::nothrow) Stamp; }

void* SoybeanHoldStamp(void* stamp) {
  static_cast<Stamp*>(stamp)->holders.fetch_add(1, std::memory_order_relaxed);
  return stamp;
}

void SoybeanReleaseStamp(void* stamp) {
  Stamp* const given = static_cast<Stamp*>(stamp);
  if (given->holders.fetch_sub(1, std::memory_order_acq_rel) == 1) delete given;
}

int64_t SoybeanStampedAt(void* stamp) {
  return static_cast<Stamp*>(stamp)->time.load(std::memory_order_acquire);
}

void SoybeanStamp(void* /*run_context*/, void* stamp) {
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  const int64_t time = std::chrono::duration_cast<std::chrono::nanoseconds>(now).count();
  static_cast<Stamp*>(stamp)->time.store(time, std::memory_order_release);
}

void* SoybeanNewGuard(void* const* stamps, int64_t count) {
  Guard* const guard = new (std::nothrow) Guard;
  if (guard == nullptr) return nullptr;
  try {
    guard->assign(stamps, stamps + count);
  } catch (const std::exception&) {
    delete guard;
    return nullptr;
  }
  for (void* stamp : *guard) SoybeanHoldStamp(stamp);
  return guard;
}

void SoybeanReleaseGuard(void* guard) {
  Guard* const given = static_cast<Guard*>(guard);
  for (void* stamp : *given) SoybeanReleaseStamp(stamp);
  delete given;
}

void SoybeanRequireStamps(void* /*run_context*/, void* guard) {
  for (void* stamp : *static_cast<const Guard*>(guard)) {
    if (SoybeanStampedAt(stamp) == 0) {
      throw std::runtime_error("An operation that this one depends on has failed.");
    }
  }
}

int SoybeanStages(const char* profile, const char* options, char** out) {
  return guarded(out, [&] {
    return soybean::stages_json(soybean::Json::parse(text_argument(profile, "the profile")),
                                soybean::Json::parse(text_argument(options, "the options")))
        .text();
  });
}
