// Malformed requests, options and plans, by the thousand: whatever arrives, the
// C interface answers 0 with a text or -1 with a message, within seconds.
// Meant to run under AddressSanitizer and UBSan.
//
//   request_fuzz [CASES [FIRST]]
//
// Case i depends on i alone: `request_fuzz 1 i` repeats it, and prints its calls.
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <random>
#include <string>
#include <vector>

#include "c_api.h"
#include "tests/check.h"
#include "tests/mutations.h"
#include "tests/sample_requests.h"

// The sanitizers end by SIGABRT, whose handler names the case.
extern "C" SOYBEAN_API const char* __asan_default_options() { return "abort_on_error=1"; }
extern "C" SOYBEAN_API const char* __ubsan_default_options() {
  return "abort_on_error=1:print_stacktrace=1";
}

namespace {

using soybean_tests::Json;
using soybean_tests::Random;
using soybean_tests::below;
using soybean_tests::mutate;
using soybean_tests::one_of;

constexpr double kMostSeconds = 20;  // of the processor, under sanitizers

unsigned long current_case = 0;
bool print_calls = false;

// The symbol is JSON inside a string: mutated on its own, so as to get past it.
std::string mutate_request(const Json& request, Random* random) {
  if (below(2, random) == 0) return mutate(request, random);
  Json result = Json::object();
  for (const auto& member : request.as_object("")) {
    if (member.first == "symbol") {
      result.set("symbol", mutate(Json::parse(member.second.as_string("")), random));
    } else {
      result.set(member.first, member.second);
    }
  }
  return result.text();
}

// ---- Calls

Json random_options(Random* random) {
  static const std::vector<const char*> strategies = {"optimal", "data", "model", "recursive", "random:7"};
  Json options = Json::object();
  options.set("devices", static_cast<int>(one_of<int>({1, 2, 3, 4, 6, 8}, random)));
  options.set("strategy", one_of(strategies, random));
  options.set("batch_norm", below(2, random) == 0 ? "exact" : "local");
  options.set("boundary", below(2, random) == 0 ? "tiled" : "whole");
  return options;
}

// Checks the contract of one call; the text that it returned, or "".
template <typename Call>
std::string call(const char* name, const std::vector<std::string>& arguments, Call function) {
  const std::clock_t start = std::clock();
  char* out = nullptr;
  const int status = function(&out);
  const double seconds = static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC;
  const std::string where = std::string(name) + " in case " + std::to_string(current_case);
  if (print_calls) {
    for (const std::string& argument : arguments) std::printf("%s\n", argument.c_str());
    std::printf("%s: %d (%s) in %.2f s\n", name, status, status == 0 ? out : SoybeanLastError(), seconds);
  }
  soybean_tests::check(seconds < kMostSeconds, __FILE__, __LINE__,
                       where + " takes " + std::to_string(seconds) + " s");
  if (status == 0) {
    soybean_tests::check(out != nullptr, __FILE__, __LINE__, where + " returns no text");
    const std::string text = out == nullptr ? "" : out;
    SoybeanFree(out);
    soybean_tests::check(soybean_tests::error_of([&] { Json::parse(text); }).empty(), __FILE__,
                         __LINE__, where + " returns text that is no JSON");
    return text;
  }
  soybean_tests::check(status == -1 && out == nullptr, __FILE__, __LINE__, where + ": bad status or text");
  soybean_tests::check(SoybeanLastError()[0] != '\0', __FILE__, __LINE__, where + " fails without a message");
  return "";
}

std::string call_rules(const std::string& request) {
  return call("SoybeanRules", {request},
              [&](char** out) { return SoybeanRules(request.c_str(), out); });
}

std::string call_plan(const std::string& request, const std::string& options) {
  return call("SoybeanPlan", {request, options},
              [&](char** out) { return SoybeanPlan(request.c_str(), options.c_str(), out); });
}

std::string call_lower(const std::string& request, const std::string& plan, const std::string& options) {
  return call("SoybeanLower", {request, plan, options}, [&](char** out) {
    return SoybeanLower(request.c_str(), plan.c_str(), options.c_str(), out);
  });
}

void run_case(const Json& request, unsigned long number) {
  Random random(static_cast<uint32_t>(number));
  const Json options = random_options(&random);
  const size_t kind = below(4, &random);
  const std::string given = kind == 0 ? mutate_request(request, &random) : request.text();
  const std::string plan = call_plan(given, kind == 1 ? mutate(options, &random) : options.text());
  if (kind == 0) call_rules(given);
  if (plan.empty()) return;
  const std::string lowered_plan = kind >= 2 ? mutate(Json::parse(plan), &random) : plan;
  Json lowering = Json::parse(R"({"order": "scheduled", "copy_engines": true, "timeline": true, "topology": null})");
  if (below(2, &random) == 0) lowering.set("conversions", Json(below(2, &random) == 0 ? "local" : "exchanged"));
  const bool mutated = below(20, &random) == 0;
  call_lower(given, lowered_plan, mutated ? mutate(lowering, &random) : below(2, &random) == 0 ? lowering.text() : "{}");
}

}  // namespace

int main(int argc, char** argv) {
  const unsigned long cases = argc > 1 ? std::strtoul(argv[1], nullptr, 10) : 3000;
  const unsigned long first = argc > 2 ? std::strtoul(argv[2], nullptr, 10) : 0;
  std::signal(SIGABRT, [](int) { std::fprintf(stderr, "request_fuzz: in case %lu\n", current_case); });
  const std::vector<Json> requests = {soybean_tests::dense_request(), soybean_tests::convolution_request(),
                                      soybean_tests::attention_request(), soybean_tests::given_rule_request()};
  for (const Json& request : requests) {  // unchanged, each is accepted
    const std::string plan = call_plan(request.text(), R"({"devices": 4, "memory_by_device": true})");
    CHECK(!plan.empty());
    CHECK(!call_lower(request.text(), plan, "{}").empty());
    CHECK(!call_lower(request.text(), plan, R"({"order": "serial", "copy_engines": true, "timeline": true, "step": true})").empty());
    CHECK(!call_lower(request.text(), plan, R"({"conversions": "local"})").empty());
  }
  print_calls = cases == 1;
  for (current_case = first; current_case < first + cases; ++current_case) {
    run_case(requests[current_case % requests.size()], current_case);
  }
  return soybean_tests::finish("request_fuzz");
}
