#include "pipeline/servers.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "graph/graph.h"

namespace soybean {
namespace {

constexpr int64_t kMostDevices = 1024;
constexpr size_t kMostLevels = 8;

size_t index(int i) { return static_cast<size_t>(i); }

double read_bandwidth(const Json& json, const std::string& what) {
  const double value = json.at("bandwidth", what).as_real("bandwidth of " + what);
  // Bounds keep times finite.
  if (!(value >= 1e-3) || !(value <= 1e18)) {
    throw Error("bandwidth of " + what + " is " + std::to_string(value) +
                ": it must be a number of bytes per second from 0.001 to 1e18");
  }
  return value;
}

int read_count(const Json& json, const std::string& what) {
  const int64_t n = json.as_int("groups of " + what);
  if (n < 1 || n > kMostDevices) {
    throw Error("groups of " + what + " is " + std::to_string(n) + ": 1 to " + std::to_string(kMostDevices) +
                " are possible");
  }
  return static_cast<int>(n);
}

void check_devices(int64_t devices) {
  if (devices > kMostDevices) {
    throw Error("there are " + std::to_string(devices) + " devices: at most " + std::to_string(kMostDevices) +
                " are possible");
  }
}

Servers unequal(const Json::Array& groups, const std::vector<double>& bandwidths) {
  std::vector<int> outer, inner;
  int64_t devices = 0;
  for (size_t g = 0; g < groups.size(); ++g) {
    const int count = read_count(groups[g], "level 0 of the devices");
    check_devices(devices += count);
    outer.insert(outer.end(), static_cast<size_t>(count), static_cast<int>(g));
  }
  if (outer.empty()) throw Error("groups of level 0 of the devices is an empty list");
  for (size_t d = 0; d < outer.size(); ++d) inner.push_back(static_cast<int>(d));
  return Servers({outer, inner}, {0, 0}, bandwidths);
}

}  // namespace

Servers::Servers(std::vector<std::vector<int>> parts, std::vector<int> groups, std::vector<double> bandwidths)
    : parts_(std::move(parts)), groups_(std::move(groups)), bandwidths_(std::move(bandwidths)),
      devices_(static_cast<int>(parts_[0].size())) {}

Servers Servers::read(const Json& levels) {
  const Json::Array& items = levels.as_array("levels of the devices");
  if (items.empty() || items.size() > kMostLevels) {
    throw Error("the devices have " + std::to_string(items.size()) + " levels: 1 to " +
                std::to_string(kMostLevels) + " are possible");
  }
  std::vector<double> bandwidths;
  for (size_t l = 0; l < items.size(); ++l) {
    bandwidths.push_back(read_bandwidth(items[l], "level " + std::to_string(l) + " of the devices"));
  }
  const Json* first = items[0].find("groups");
  if (first != nullptr && first->is_array()) {
    const Json* within = items.size() == 2 ? items[1].find("groups") : nullptr;
    if (items.size() != 2 || (within != nullptr && !within->is_null())) {
      throw Error("unequal servers have two levels, the second without groups");
    }
    return unequal(first->as_array("groups"), bandwidths);
  }
  std::vector<int> groups;
  int64_t devices = 1;
  for (size_t l = 0; l < items.size(); ++l) {
    const std::string what = "level " + std::to_string(l) + " of the devices";
    groups.push_back(read_count(items[l].at("groups", what), what));
    check_devices(devices *= groups.back());
  }
  std::vector<std::vector<int>> parts;
  int64_t size = devices;
  for (const int g : groups) {
    size /= g;
    parts.emplace_back();
    for (int64_t d = 0; d < devices; ++d) parts.back().push_back(static_cast<int>(d / size));
  }
  return Servers(std::move(parts), std::move(groups), std::move(bandwidths));
}

double Servers::slowest() const { return *std::min_element(bandwidths_.begin(), bandwidths_.end()); }

double Servers::rate_across(int level) const {
  return *std::min_element(bandwidths_.begin() + level, bandwidths_.end());
}

int Servers::between(int first, int last) const {
  for (int l = 0; l < levels(); ++l) {
    if (parts_[index(l)][index(first)] != parts_[index(l)][index(last)]) return l;
  }
  return levels();
}

double Servers::exchange_seconds_per_byte(int first, int count) const {
  double seconds = 0;
  for (int l = 0; l < levels(); ++l) {
    int most = 1, run = 1;
    for (int d = first + 1; d < first + count; ++d) {
      if (parts_[index(l)][index(d)] == parts_[index(l)][index(d - 1)]) continue;
      const bool around = l == 0 || parts_[index(l - 1)][index(d)] == parts_[index(l - 1)][index(d - 1)];
      run = around ? run + 1 : 1;
      most = std::max(most, run);
    }
    seconds += 4.0 * (most - 1) / (most * bandwidth(l));
  }
  return seconds;
}

}  // namespace soybean
