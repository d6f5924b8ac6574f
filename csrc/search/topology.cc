#include "search/topology.h"

#include <algorithm>

namespace soybean {
namespace {

double positive(const Json& json, const char* key, const std::string& what) {
  const double value = json.at(key, what).as_real(std::string(key) + " of " + what);
  if (!(value > 0)) {
    throw Error(std::string(key) + " of " + what + " is " + std::to_string(value) + ": it must be positive");
  }
  return value;
}

struct Level {
  LinkLevel link;
  int64_t groups = 0;            // 0: whatever is left
  std::vector<int64_t> unequal;  // devices of each group, where they differ
};

int64_t group_count(const Json& json, const std::string& what) {
  const int64_t n = json.as_int("groups of " + what);
  if (n < 1 || n > 4096) throw Error("groups of " + what + " is " + std::to_string(n) + ": 1 to 4096 are possible");
  return n;
}

Level read_level(const Json& json, size_t position) {
  const std::string what = "level " + std::to_string(position) + " of the topology";
  Level level;
  level.link.bandwidth = positive(json, "bandwidth", what);
  const Json* latency = json.find("latency");
  level.link.latency = latency == nullptr ? 0 : latency->as_real("latency of " + what);
  if (!(level.link.latency >= 0)) throw Error("latency of " + what + " is negative");
  const Json* groups = json.find("groups");
  if (groups == nullptr || groups->is_null()) return level;
  if (!groups->is_array()) {
    level.groups = group_count(*groups, what);
    return level;
  }
  for (const Json& item : groups->as_array(what)) level.unequal.push_back(group_count(item, what));
  if (level.unequal.empty()) throw Error("groups of " + what + " is an empty list");
  const int64_t first = level.unequal[0];
  const bool equal = std::all_of(level.unequal.begin(), level.unequal.end(), [first](int64_t n) { return n == first; });
  if (equal) {
    level.groups = static_cast<int64_t>(level.unequal.size());
    level.unequal.clear();
  }
  return level;
}

Mesh equal_mesh(std::vector<Level> levels, int64_t devices) {
  int64_t known = 1;
  int open = 0;
  for (const Level& level : levels) {
    known *= std::max<int64_t>(level.groups, 1);
    open += level.groups == 0 ? 1 : 0;
  }
  if (open > 1) throw Error("the topology leaves open the groups of several levels: give all but one");
  if (known > devices || devices % known != 0 || (open == 0 && known != devices)) {
    throw Error("the topology has " + std::to_string(known) + " devices, but " + std::to_string(devices) + " are asked for");
  }
  std::vector<int> cuts, levels_of_cuts;
  for (size_t i = 0; i < levels.size(); ++i) {
    const int64_t groups = levels[i].groups == 0 ? devices / known : levels[i].groups;
    const Mesh factors(groups);
    for (int c = 0; c < factors.cut_count(); ++c) {
      cuts.push_back(factors.parts(c));
      levels_of_cuts.push_back(static_cast<int>(i));
    }
  }
  return Mesh(std::move(cuts), std::move(levels_of_cuts));
}

Mesh unequal_mesh(const std::vector<Level>& levels, int64_t devices) {
  if (levels.size() != 2 || levels[1].groups != 0 || !levels[1].unequal.empty()) {
    throw Error("a topology with unequal hosts has two levels, the hosts and the links within, the second without groups");
  }
  std::vector<int> host;
  for (size_t h = 0; h < levels[0].unequal.size(); ++h) host.insert(host.end(), static_cast<size_t>(levels[0].unequal[h]), static_cast<int>(h));
  if (static_cast<int64_t>(host.size()) != devices) {
    throw Error("the topology has " + std::to_string(host.size()) + " devices, but " + std::to_string(devices) + " are asked for");
  }
  const Mesh plain(devices);
  std::vector<int> cuts, of_cuts;
  for (int c = 0; c < plain.cut_count(); ++c) {
    bool crosses = false;
    for (int d = 0; d < plain.devices(); ++d) {
      const int other = plain.with_digit(d, c, 0);
      crosses = crosses || host[static_cast<size_t>(d)] != host[static_cast<size_t>(other)];
    }
    cuts.push_back(plain.parts(c));
    of_cuts.push_back(crosses ? 0 : 1);
  }
  return Mesh(std::move(cuts), std::move(of_cuts));
}

}  // namespace

Topology read_topology(const Json& json, int64_t devices) {
  Topology out;
  const Json& device = json.at("device", "the topology");
  out.machine.flops = positive(device, "flops", "the topology's device");
  out.machine.memory_bandwidth = positive(device, "memory_bandwidth", "the topology's device");
  std::vector<Level> levels;
  for (const Json& item : json.at("levels", "the topology").as_array("levels of the topology")) {
    levels.push_back(read_level(item, levels.size()));
    out.machine.links.push_back(levels.back().link);
  }
  if (levels.empty()) throw Error("the topology has no levels: give one at least");
  for (size_t i = 1; i < levels.size(); ++i) {
    if (!levels[i].unequal.empty()) throw Error("only the outermost level of a topology may have unequal groups");
  }
  out.mesh = levels[0].unequal.empty() ? equal_mesh(levels, devices) : unequal_mesh(levels, devices);
  return out;
}

}  // namespace soybean
