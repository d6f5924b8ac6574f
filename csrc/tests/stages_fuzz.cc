// Malformed profiles and options of the search for stages, by the thousand: each is
// answered or refused with a message, within seconds; answers hold every layer once.
// Meant to run under AddressSanitizer and UBSan.
//
//   stages_fuzz [CASES [FIRST]]
//
// Case i depends on i alone.
#include <cstdlib>
#include <ctime>
#include <set>
#include <string>
#include <vector>

#include "pipeline/stages.h"
#include "tests/check.h"
#include "tests/mutations.h"

namespace {

using soybean_tests::Json;
using soybean_tests::Random;
using soybean_tests::below;
using soybean_tests::one_of;

constexpr double kMostSeconds = 20;  // of the processor, under sanitizers

Json random_profile(Random* random) {
  const int count = 1 + static_cast<int>(below(9, random));
  Json layers = Json::array(), edges = Json::array();
  for (int i = 0; i < count; ++i) {
    Json layer = Json::object();
    layer.set("name", "layer" + std::to_string(i));
    layer.set("seconds", static_cast<double>(below(10, random)) / 8);
    layer.set("activation_bytes", static_cast<int>(below(100, random)));
    layer.set("parameter_bytes", static_cast<int>(below(100, random)));
    if (below(4, random) == 0) layer.set("data_bytes", static_cast<int>(below(100, random)));
    layers.push(std::move(layer));
    for (int source = 0; source < i; ++source) {
      if (below(3, random) == 0) edges.push(soybean::json_array({source, i}));
    }
  }
  Json profile = Json::object();
  profile.set("layers", std::move(layers));
  profile.set("edges", std::move(edges));
  return profile;
}

Json random_options(Random* random) {
  Json levels = Json::array();
  for (size_t l = 1 + below(3, random); l > 0; --l) {
    Json level = Json::object();
    level.set("groups", static_cast<int>(1 + below(4, random)));
    level.set("bandwidth", static_cast<double>(1 + below(50, random)));
    levels.push(std::move(level));
  }
  Json options = Json::object();
  options.set("levels", std::move(levels));
  options.set("cost_model", one_of<const char*>({"released", "v1", "sosp", "overlap"}, random));
  if (below(3, random) == 0) options.set("memory_limit", static_cast<int>(1 + below(2000, random)));
  if (below(3, random) == 0) options.set("optimizer_states", static_cast<int>(below(3, random)));
  return options;
}

void check_layers(const Json& found, size_t count) {
  std::set<int64_t> layers;
  size_t named = 0;
  for (const Json& stage : found.at("stages", "").as_array("")) {
    for (const Json& layer : stage.at("layers", "").as_array("")) {
      layers.insert(layer.as_int(""));
      ++named;
    }
  }
  CHECK(layers.size() == count && named == count);
}

// Whether it was answered.
bool run(const std::string& profile_text, const std::string& options_text) {
  const std::clock_t start = std::clock();
  bool answered = false;
  const std::string error = soybean_tests::error_of([&] {
    const Json profile = Json::parse(profile_text);
    const Json found = Json::parse(soybean::stages_json(profile, Json::parse(options_text)).text());
    check_layers(found, profile.at("layers", "").as_array("").size());
    answered = true;
  });
  CHECK(answered != !error.empty());
  CHECK(static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC < kMostSeconds);
  return answered;
}

}  // namespace

int main(int argc, char** argv) {
  const unsigned long cases = argc > 1 ? std::strtoul(argv[1], nullptr, 10) : 3000;
  const unsigned long first = argc > 2 ? std::strtoul(argv[2], nullptr, 10) : 0;
  int answered = 0;
  for (unsigned long number = first; number < first + cases; ++number) {
    Random random(static_cast<uint32_t>(number));
    const Json profile = random_profile(&random), options = random_options(&random);
    const size_t kind = below(3, &random);
    const std::string given = kind == 0 ? soybean_tests::mutate(profile, &random) : profile.text();
    const std::string asked = kind == 1 ? soybean_tests::mutate(options, &random) : options.text();
    answered += run(given, asked) ? 1 : 0;
  }
  CHECK(cases < 100 || static_cast<unsigned long>(answered) > cases / 4);
  return soybean_tests::finish("stages_fuzz");
}
