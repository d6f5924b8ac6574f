// A machine as the user describes it (docs/interface.md), and the cuts that divide
// its devices.
#ifndef SOYBEAN_SEARCH_TOPOLOGY_H_
#define SOYBEAN_SEARCH_TOPOLOGY_H_

#include "graph/json.h"
#include "search/prices.h"

namespace soybean {

struct Topology {
  Machine machine;
  Mesh mesh{1};
};

// Levels go from the outermost links to the innermost; each is divided by cuts of
// its own, so that a cut never straddles two levels. Where hosts have unequal
// numbers of devices, the devices are numbered host by host and cut regardless of
// hosts; a cut then has the slowest level that any two of its devices cross.
// Throws Error for figures that cannot be, or when `devices` is another number.
Topology read_topology(const Json& json, int64_t devices);

}  // namespace soybean

#endif  // SOYBEAN_SEARCH_TOPOLOGY_H_
